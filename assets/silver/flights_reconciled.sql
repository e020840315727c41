-- What became of each bronze row of flights (DuckDB SQL). In: {bronze}, {silver}, {quarantine}.
-- Each table is counted by itself: a count of the joined tables would rise on both sides where a row is in silver twice.
-- Keys are compared as they landed, so that an error in how silver computes them shows.
WITH places AS (
  SELECT _source_file, _source_row FROM {silver}
  UNION ALL
  SELECT _source_file, _source_row FROM {quarantine}
),
silver_keys AS (
  SELECT year, month, day, carrier, flight, origin, sched_dep_time
  FROM {bronze} SEMI JOIN {silver} AS s USING (_source_file, _source_row)
),
without_place AS (
  SELECT k.carrier IS NOT NULL AS has_key_of_silver
  FROM (FROM {bronze} ANTI JOIN places USING (_source_file, _source_row)) AS b
  LEFT JOIN (SELECT DISTINCT * FROM silver_keys) AS k USING (year, month, day, carrier, flight, origin, sched_dep_time)
)
SELECT
  (SELECT count(*) FROM {bronze}) AS bronze,
  (SELECT count(*) FROM {silver}) AS silver,
  (SELECT count(*) FROM {quarantine}) AS quarantine,
  (SELECT count(*) FROM without_place WHERE has_key_of_silver) AS duplicates,
  (SELECT count(*) FROM without_place WHERE NOT has_key_of_silver) AS unaccounted,
  (SELECT count(*) FROM places ANTI JOIN {bronze} AS b USING (_source_file, _source_row)) AS orphans,
  (SELECT count(*) - count(DISTINCT (_source_file, _source_row)) FROM places)
    + (SELECT count(*) - count(DISTINCT (year, month, day, carrier, flight, origin, sched_dep_time)) FROM silver_keys)
    AS doubled
