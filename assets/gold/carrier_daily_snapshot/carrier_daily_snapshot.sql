-- One row a carrier and day, as the day is known when it is first seen (DuckDB SQL).
SELECT
  flight_date AS snapshot_date, carrier,
  count(*) AS flights,
  count_if(cancelled) AS cancelled,
  avg(departure_delay_min) AS mean_departure_delay_min,
  avg(arrival_delay_min) AS mean_arrival_delay_min,
  now() AS taken_at
FROM silver.flights
GROUP BY flight_date, carrier
ORDER BY flight_date, carrier
