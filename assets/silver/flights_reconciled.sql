-- What became of each bronze row of flights (DuckDB SQL). In: {bronze}, {silver}, {quarantine}.
-- Keys are compared as they landed, so that an error in how silver computes them shows.
WITH found AS (
  SELECT _source_file, _source_row, 'silver' AS place FROM {silver}
  UNION ALL
  SELECT _source_file, _source_row, 'quarantine' FROM {quarantine}
),
placed AS (
  SELECT b.*, f.place FROM {bronze} AS b LEFT JOIN found AS f USING (_source_file, _source_row)
),
in_silver AS (
  SELECT DISTINCT year, month, day, carrier, flight, origin, sched_dep_time FROM placed WHERE place = 'silver'
)
SELECT
  count(*) AS bronze,
  count_if(p.place = 'silver') AS silver,
  count_if(p.place = 'quarantine') AS quarantine,
  count_if(p.place IS NULL AND s.carrier IS NOT NULL) AS duplicates,
  count_if(p.place IS NULL AND s.carrier IS NULL) AS unaccounted,
  (SELECT count(*) FROM found ANTI JOIN {bronze} AS b
     ON found._source_file = b._source_file AND found._source_row = b._source_row) AS orphans
FROM placed AS p LEFT JOIN in_silver AS s
  USING (year, month, day, carrier, flight, origin, sched_dep_time)
