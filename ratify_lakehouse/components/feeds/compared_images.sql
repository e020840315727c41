SELECT CAST($version AS BIGINT) AS version, timestamp_millis($committed_ms) AS committed_at, is_after, key, row
FROM (
  SELECT false AS is_after, key, row FROM (SELECT * FROM {before} EXCEPT ALL SELECT * FROM {after})
  UNION ALL
  SELECT true AS is_after, key, row FROM (SELECT * FROM {after} EXCEPT ALL SELECT * FROM {before})
)
