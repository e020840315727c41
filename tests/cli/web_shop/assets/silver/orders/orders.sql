SELECT bestellnr AS order_id, kunde AS customer_id, grosse AS size, strasse AS street, betrag AS amount,
  bestellt_am AS ordered_at, CAST(bestellt_am AS DATE) AS day, _source_file, _source_row
FROM bronze.orders
