-- The rows of a bronze table of landed files, with `_landing`: the greatest is that of the content that landed last.
-- In: $bronze, $ledger, the tables; $table_name, the bronze table as the ledger names it.
-- A content landed last where its last entry in the ledger says so, also one of status repeated, which added no rows. Entries
-- are ordered by the bronze version of their rows, and within a version as the ledger's table has them (its row ids grow
-- from commit to commit). No clock takes part: not `_loaded_at`, not `recorded_at`.
WITH landed AS (
  SELECT *, _metadata.row_commit_version AS ratify_version FROM $bronze
),
files AS (
  SELECT _source_file, _batch_id, min(ratify_version) AS ratify_version FROM landed GROUP BY ALL
),
entries AS (
  SELECT path, batch_id, sha256, status, version, _metadata.row_id AS entry
  FROM $ledger WHERE table_name = $table_name AND status IN ('loaded', 'repeated')
),
loads AS (
  -- An entry that was recovered after a crash does not know the version of its rows.
  SELECT e.*, coalesce(e.version, f.ratify_version) AS at
  FROM entries AS e LEFT JOIN files AS f
  ON e.status = 'loaded' AND e.path = f._source_file AND e.batch_id = f._batch_id
),
landings AS (
  -- A repeated file landed after all that was loaded before its entry.
  SELECT *, struct(
    if(status = 'loaded', at, max(at) OVER (ORDER BY entry ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS version,
    entry) AS landing
  FROM loads
),
contents AS (
  SELECT sha256, max(landing) AS landing FROM landings GROUP BY sha256
),
last_landings AS (
  SELECT l.path, l.batch_id, max(c.landing) AS landing
  FROM loads AS l JOIN contents AS c USING (sha256) WHERE l.status = 'loaded' GROUP BY l.path, l.batch_id
)
SELECT
  b.* EXCEPT (ratify_version),
  -- Between the commit of a file's rows and its entry there is no entry yet.
  coalesce(l.landing, struct(b.ratify_version AS version, CAST(NULL AS BIGINT) AS entry)) AS _landing
FROM landed AS b LEFT JOIN last_landings AS l ON b._source_file = l.path AND b._batch_id = l.batch_id
