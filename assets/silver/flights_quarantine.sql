-- The rows that fail an expectation, as they landed, with the names of all that they fail.
-- In: {judged}, the rows of flights_parsed.sql as their expectations judge them.
SELECT _source_file, _source_row, array_join(failed, ', ') AS rule, landed, _batch_id
FROM {judged} WHERE because IS NOT NULL AND because <> 'one_row_for_flight'
