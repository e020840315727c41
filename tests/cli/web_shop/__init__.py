"""A web shop of three feeds, as a new user declares it: orders in CSV, customers in JSON lines, items in Parquet."""
