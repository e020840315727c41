-- The rows of a bronze table of landed files, with `_landing`: the greatest is that of the content that landed last.
-- In: $bronze, $ledger, the tables; $table_id, the bronze table's id in the ledger; $version and $position, an entry's place.
-- A content landed last where its last entry in the ledger says so, also one of status repeated, which added no rows. Entries
-- are ordered by the bronze version as of which their batch landed, then by their places in the batch, and where those are
-- equal as the ledger's table has them (its row ids grow from commit to commit). No clock takes part: not `_loaded_at`, not
-- `recorded_at`.
WITH landed AS (
  SELECT *, _metadata.row_commit_version AS ratify_version FROM $bronze
),
loads AS (
  SELECT path, batch_id, sha256, status, struct($version AS version, $position AS position, _metadata.row_id AS entry) AS landing
  FROM $ledger WHERE table_id = $table_id AND status IN ('loaded', 'repeated')
),
contents AS (
  SELECT sha256, max(landing) AS landing FROM loads GROUP BY sha256
),
last_landings AS (
  SELECT l.path, l.batch_id, max(c.landing) AS landing
  FROM loads AS l JOIN contents AS c USING (sha256) WHERE l.status = 'loaded' GROUP BY l.path, l.batch_id
)
SELECT
  b.* EXCEPT (ratify_version),
  -- Between the commit of a file's rows and its entry there is no entry yet.
  coalesce(
    l.landing, struct(b.ratify_version AS version, CAST(NULL AS INT) AS position, CAST(NULL AS BIGINT) AS entry)
  ) AS _landing
FROM landed AS b LEFT JOIN last_landings AS l ON b._source_file = l.path AND b._batch_id = l.batch_id
