-- What became of each row of a table's input (DuckDB SQL).
-- In: $input, $output, $quarantine, the relations; $row_id, columns of all three that identify a row of the input; $key,
-- columns of the input, of whose rows with the same values the table has one.
-- Each relation is counted by itself: a count of joined ones would rise on both sides where a row is in the table twice.
-- Keys are compared as the input has them, so that an error in how the table's query computes its own shows.
WITH places AS (
  SELECT $row_id FROM $output
  UNION ALL
  SELECT $row_id FROM $quarantine
),
output_keys AS (
  SELECT $key FROM $input SEMI JOIN $output AS o USING ($row_id)
),
without_place AS (
  SELECT k.ratify_in_output IS NOT NULL AS is_duplicate
  FROM (FROM $input ANTI JOIN places USING ($row_id)) AS i
  LEFT JOIN (SELECT DISTINCT *, true AS ratify_in_output FROM output_keys) AS k USING ($key)
)
SELECT
  (SELECT count(*) FROM $input) AS input,
  (SELECT count(*) FROM $output) AS output,
  (SELECT count(*) FROM $quarantine) AS quarantine,
  (SELECT count(*) FROM without_place WHERE is_duplicate) AS duplicates,
  (SELECT count(*) FROM without_place WHERE NOT is_duplicate) AS unaccounted,
  (SELECT count(*) FROM places ANTI JOIN $input AS i USING ($row_id)) AS orphans,
  (SELECT count(*) - count(DISTINCT ROW($row_id)) FROM places)
    + (SELECT count(*) - count(DISTINCT ROW($key)) FROM output_keys) AS doubled
