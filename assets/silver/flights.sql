-- One row a flight: of the rows that keep all rules, the one that landed last.
-- In: {parsed}, the rows of flights_parsed.sql.
SELECT
  flight_id, flight_date, carrier, flight_number, tail_number, origin, dest, scheduled_departure_utc, departure_utc,
  scheduled_arrival_utc, arrival_utc, departure_delay_min, arrival_delay_min, air_time_min, distance_miles, cancelled,
  diverted, _source_file, _source_row, _batch_id
FROM {parsed}
WHERE rule IS NULL
QUALIFY row_number() OVER (
  PARTITION BY flight_id ORDER BY _loaded_at DESC, _source_file DESC, _source_row DESC) = 1
