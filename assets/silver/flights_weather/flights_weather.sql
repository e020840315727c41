-- Each flight with the last weather observation at its origin, not later than its scheduled departure and not older than
-- three hours (an as-of join); without one the observation's columns are NULL.
-- An observation's time_hour is UTC. It is offered to the flights of its hour and of the next three: an equi-join on the
-- origin alone would pair each flight with a year of weather, and a window would make each flight depend on all others.
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
  FROM bronze.weather WHERE try_cast(time_hour AS TIMESTAMP) IS NOT NULL GROUP BY origin, CAST(time_hour AS TIMESTAMP)
),
offered AS (
  SELECT
    o.origin, o.observed_at_utc, o.seen,
    date_trunc('HOUR', o.observed_at_utc) + make_dt_interval(0, later.hours) AS to_departures_in
  FROM observations AS o CROSS JOIN (VALUES (0), (1), (2), (3)) AS later(hours)
),
joined AS (
  SELECT f.flight_id, f.origin, f.scheduled_departure_utc, max_by(o.seen, o.observed_at_utc) AS seen
  FROM silver.flights AS f
  LEFT JOIN offered AS o
    ON f.origin = o.origin AND date_trunc('HOUR', f.scheduled_departure_utc) = o.to_departures_in
    AND o.observed_at_utc <= f.scheduled_departure_utc
    AND f.scheduled_departure_utc - o.observed_at_utc <= INTERVAL 3 HOURS
  GROUP BY f.flight_id, f.origin, f.scheduled_departure_utc
)
SELECT
  flight_id, origin, scheduled_departure_utc,
  seen.observed_at_utc, seen.temperature_f, seen.dew_point_f, seen.humidity_pct, seen.wind_direction_deg,
  seen.wind_speed_mph, seen.wind_gust_mph, seen.precipitation_in, seen.pressure_mb, seen.visibility_mi
FROM joined
