-- The rows that break a rule, as they landed, with the names of the rules.
-- In: {parsed}, the rows of flights_parsed.sql.
SELECT _source_file, _source_row, rule, landed, _batch_id FROM {parsed} WHERE rule IS NOT NULL
