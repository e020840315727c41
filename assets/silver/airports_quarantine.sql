-- The rows that fail an expectation, as they landed, with the names of all that they fail.
-- In: {validated}, the rows of airports_parsed.sql as their expectations validate them.
SELECT _source_file, _source_row, array_join(failed, ', ') AS rule, landed, _batch_id
FROM {validated} WHERE decided_by IS NOT NULL AND decided_by <> 'one_row_for_airport'
