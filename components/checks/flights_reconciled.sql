-- Where each bronze row of flights went. In: {bronze}, {silver}, {quarantine}.
-- Keys are compared as they landed, so that a fault in how silver computes them shows.
WITH kept AS (
  SELECT _source_file, _source_row, 'silver' AS place FROM {silver}
  UNION ALL
  SELECT _source_file, _source_row, 'quarantine' FROM {quarantine}
),
fate AS (
  SELECT b.*, k.place FROM {bronze} AS b LEFT JOIN kept AS k USING (_source_file, _source_row)
),
in_silver AS (
  SELECT DISTINCT year, month, day, carrier, flight, origin, sched_dep_time FROM fate WHERE place = 'silver'
)
SELECT
  count(*) AS bronze,
  count_if(f.place = 'silver') AS silver,
  count_if(f.place = 'quarantine') AS quarantine,
  count_if(f.place IS NULL AND s.carrier IS NOT NULL) AS duplicates,
  count_if(f.place IS NULL AND s.carrier IS NULL) AS unaccounted,
  (SELECT count(*) FROM kept ANTI JOIN {bronze} AS b
     ON kept._source_file = b._source_file AND kept._source_row = b._source_row) AS invented
FROM fate AS f LEFT JOIN in_silver AS s
  USING (year, month, day, carrier, flight, origin, sched_dep_time)
