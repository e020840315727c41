SELECT order_id, position, article, quantity, price FROM bronze.items
