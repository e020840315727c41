-- One row a flight: rows that pass all expectations, and of several the one that landed last.
-- In: {validated}, the rows of flights_parsed.sql as their expectations validate them.
SELECT
  flight_id, flight_date, carrier, flight_number, tail_number, origin, dest, scheduled_departure_utc, departure_utc,
  scheduled_arrival_utc, arrival_utc, departure_delay_min, arrival_delay_min, air_time_min, distance_miles, cancelled,
  diverted, _source_file, _source_row, _batch_id
FROM {validated} WHERE decided_by IS NULL
