-- One row an airport: rows that pass all expectations, and of several the one that landed last.
-- In: {validated}, the rows of airports_parsed.sql as their expectations validate them.
SELECT faa, name, zone, _source_file, _source_row, _batch_id FROM {validated} WHERE decided_by IS NULL
