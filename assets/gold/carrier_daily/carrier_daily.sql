-- A carrier's day: how much it flew and how late it was. On time: arrived less than 15 minutes late.
WITH names AS (
  SELECT carrier, max_by(name, struct(_landing, _source_file, _source_row)) AS carrier_name
  FROM bronze.airlines GROUP BY carrier
)
SELECT
  f.flight_date, f.carrier, n.carrier_name,
  count(*) AS flights,
  count_if(f.cancelled) AS cancelled,
  count_if(f.diverted) AS diverted,
  avg(f.departure_delay_min) AS mean_departure_delay_min,
  avg(f.arrival_delay_min) AS mean_arrival_delay_min,
  count_if(f.arrival_delay_min < 15) / nullif(count(f.arrival_delay_min), 0) AS on_time_share,
  sum(CASE WHEN NOT f.cancelled THEN f.distance_miles END) AS miles_flown
FROM silver.flights AS f LEFT JOIN names AS n ON f.carrier = n.carrier
GROUP BY f.flight_date, f.carrier, n.carrier_name
