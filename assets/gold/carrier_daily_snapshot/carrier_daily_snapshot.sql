-- One day of every carrier, as it was known when it was first complete (DuckDB SQL).
-- Parameters: $day. `flights` is the attached silver table.
SELECT
  flight_date AS snapshot_date, carrier,
  count(*) AS flights,
  count_if(cancelled) AS cancelled,
  avg(departure_delay_min) AS mean_departure_delay_min,
  avg(arrival_delay_min) AS mean_arrival_delay_min,
  now() AS taken_at
FROM flights WHERE flight_date = $day
GROUP BY flight_date, carrier ORDER BY carrier
