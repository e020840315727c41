SELECT
  $table_id AS table_id,
  p.version,
  p.number,
  p.committed_at,
  p.change,
  p.key,
  p.before,
  p.after,
  c.operation,
  c.engine,
  c.engine_info,
  c.principal,
  c.run_id
FROM {paired} AS p LEFT JOIN {commits} AS c ON p.version = c.version
