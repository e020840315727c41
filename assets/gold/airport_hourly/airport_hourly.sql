-- An airport's hour of scheduled departures beside its weather (DuckDB SQL).
SELECT
  f.origin AS airport,
  date_trunc('hour', f.scheduled_departure_utc) AS hour_utc,
  count(*) AS departures,
  count(*) FILTER (WHERE f.cancelled) AS cancelled,
  avg(f.departure_delay_min) AS mean_departure_delay_min,
  max(f.departure_delay_min) AS max_departure_delay_min,
  max(w.temperature_f) AS temperature_f,
  max(w.wind_speed_mph) AS wind_speed_mph,
  max(w.precipitation_in) AS precipitation_in,
  min(w.visibility_mi) AS visibility_mi
FROM silver.flights AS f JOIN silver.flights_weather AS w ON f.flight_id = w.flight_id
GROUP BY f.origin, date_trunc('hour', f.scheduled_departure_utc)
