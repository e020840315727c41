SELECT o.customer_id, any_value(c.city) AS city, count(*) AS orders, sum(o.amount) AS amount
FROM silver.orders AS o LEFT JOIN silver.customers AS c ON c.customer_id = o.customer_id AND c.current
GROUP BY o.customer_id
