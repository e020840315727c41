-- Each flight with the last weather observation at its origin, not later than its scheduled departure and not older than
-- three hours (an as-of join); without one the observation's columns are NULL.
-- An observation's time_hour is UTC. One pass over both, ordered by time: an equi-join on the origin would pair each flight
-- with a year of weather.
WITH observations AS (
  SELECT
    origin, CAST(time_hour AS TIMESTAMP) AS observed_at_utc,
    max_by(
      struct(CAST(time_hour AS TIMESTAMP) AS observed_at_utc, try_cast(temp AS DOUBLE) AS temperature_f,
        try_cast(dewp AS DOUBLE) AS dew_point_f, try_cast(humid AS DOUBLE) AS humidity_pct,
        try_cast(wind_dir AS DOUBLE) AS wind_direction_deg, try_cast(wind_speed AS DOUBLE) AS wind_speed_mph,
        try_cast(wind_gust AS DOUBLE) AS wind_gust_mph, try_cast(precip AS DOUBLE) AS precipitation_in,
        try_cast(pressure AS DOUBLE) AS pressure_mb, try_cast(visib AS DOUBLE) AS visibility_mi),
      struct(_landing, _source_file, _source_row)) AS seen
  FROM bronze.weather WHERE try_cast(time_hour AS TIMESTAMP) IS NOT NULL GROUP BY ALL
),
timeline AS (
  SELECT origin, observed_at_utc AS at, 0 AS is_flight, NULL AS flight_id, seen FROM observations
  UNION ALL
  SELECT origin, scheduled_departure_utc, 1, flight_id, NULL FROM silver.flights
),
joined AS (
  SELECT
    flight_id, origin, at, is_flight,
    last_value(seen) IGNORE NULLS OVER (
      PARTITION BY origin ORDER BY at, is_flight ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last_seen
  FROM timeline
)
SELECT
  flight_id, origin, scheduled_departure_utc,
  seen.observed_at_utc, seen.temperature_f, seen.dew_point_f, seen.humidity_pct, seen.wind_direction_deg,
  seen.wind_speed_mph, seen.wind_gust_mph, seen.precipitation_in, seen.pressure_mb, seen.visibility_mi
FROM (
  SELECT
    flight_id, origin, at AS scheduled_departure_utc,
    CASE WHEN at - last_seen.observed_at_utc <= INTERVAL 3 HOURS THEN last_seen END AS seen
  FROM joined WHERE is_flight = 1
)
