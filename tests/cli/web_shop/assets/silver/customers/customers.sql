SELECT id AS customer_id, name, city, CAST(regexp_extract(_source_file, '\d{4}-\d\d-\d\d') AS DATE) AS listed_on
FROM bronze.customers
