SELECT o.day, o.size, count(DISTINCT o.order_id) AS orders, sum(i.quantity) AS pieces, sum(i.quantity * i.price) AS value
FROM silver.orders AS o LEFT JOIN silver.items AS i ON i.order_id = o.order_id
GROUP BY o.day, o.size
