-- How late a route is, over all its days.
-- In: {flights}, {airports}.
WITH names AS (
  SELECT faa, max_by(name, struct(_loaded_at, _source_file, _source_row)) AS airport_name FROM {airports} GROUP BY faa
)
SELECT
  f.origin, f.dest, n.airport_name AS dest_name,
  count(*) AS flights,
  count(DISTINCT f.carrier) AS carriers,
  max(f.distance_miles) AS distance_miles,
  avg(f.arrival_delay_min) AS mean_arrival_delay_min,
  percentile(f.arrival_delay_min, 0.5) AS median_arrival_delay_min,
  percentile(f.arrival_delay_min, 0.9) AS p90_arrival_delay_min,
  count_if(f.cancelled) / count(*) AS cancelled_share
FROM {flights} AS f LEFT JOIN names AS n ON f.dest = n.faa
GROUP BY f.origin, f.dest, n.airport_name
