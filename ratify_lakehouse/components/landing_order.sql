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
  SELECT
    path, batch_id, status,
    max(struct($version AS version, $position AS position, _metadata.row_id AS entry)) OVER (PARTITION BY sha256) AS landing
  FROM $ledger WHERE table_id = $table_id AND status IN ('loaded', 'repeated') AND sha256 IS NOT NULL
),
last_landings AS (
  SELECT path, batch_id, max(landing) AS landing FROM loads WHERE status = 'loaded' GROUP BY path, batch_id
)
SELECT
  b.* EXCEPT (ratify_version),
  -- Between the commit of a file's rows and its entry there is no entry yet.
  coalesce(
    l.landing, struct(b.ratify_version AS version, CAST(NULL AS INT) AS position, CAST(NULL AS BIGINT) AS entry)
  ) AS _landing
FROM landed AS b LEFT JOIN last_landings AS l ON b._source_file = l.path AND b._batch_id = l.batch_id
