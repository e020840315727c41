WITH changed AS (
  SELECT
    _commit_version AS version,
    _commit_timestamp AS committed_at,
    _change_type IN ('insert', 'update_postimage') AS is_after,
    to_json(struct($keys), $options) AS key,
    to_json(struct($columns), $options) AS row
  FROM {changes}
),
-- The images of an update say nothing of each other but the keys, which several rows may have.
numbered AS (
  SELECT *, row_number() OVER (PARTITION BY version, key, is_after ORDER BY row) AS number FROM changed
),
paired AS (
  SELECT
    version, key, number,
    min(committed_at) AS committed_at,
    max(row) FILTER (WHERE NOT is_after) AS before,
    max(row) FILTER (WHERE is_after) AS after
  FROM numbered
  GROUP BY version, key, number
)
SELECT
  version,
  CAST(number AS INT) AS number,
  committed_at,
  CASE WHEN before IS NULL THEN 'insert' WHEN after IS NULL THEN 'delete' ELSE 'update' END AS change,
  key,
  before,
  after
FROM paired
