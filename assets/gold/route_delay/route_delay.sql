-- How late a route is, over all its days (DuckDB SQL).
SELECT
  f.origin, f.dest, a.name AS dest_name,
  count(*) AS flights,
  count(DISTINCT f.carrier) AS carriers,
  max(f.distance_miles) AS distance_miles,
  avg(f.arrival_delay_min) AS mean_arrival_delay_min,
  quantile_cont(f.arrival_delay_min, 0.5) AS median_arrival_delay_min,
  quantile_cont(f.arrival_delay_min, 0.9) AS p90_arrival_delay_min,
  count(*) FILTER (WHERE f.cancelled) / count(*) AS cancelled_share
FROM silver.flights AS f LEFT JOIN silver.airports AS a ON f.dest = a.faa
GROUP BY f.origin, f.dest, a.name
