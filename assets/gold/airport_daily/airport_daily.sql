-- A New York airport's day: how much departed and how late it was.
SELECT
  flight_date, origin AS airport,
  count(*) AS departures,
  count(*) FILTER (WHERE cancelled) AS cancelled,
  avg(departure_delay_min) AS mean_departure_delay_min,
  max(departure_delay_min) AS max_departure_delay_min
FROM silver.flights
GROUP BY flight_date, origin
