-- The images of an update say nothing of each other but the keys, which several rows may have.
WITH numbered AS (
  SELECT *, row_number() OVER (PARTITION BY version, key, is_after ORDER BY row) AS number FROM {images}
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
