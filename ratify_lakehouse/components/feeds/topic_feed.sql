SELECT
  version,
  number,
  key,
  concat(
    '{{"before":', coalesce(before, 'null'),
    ',"after":', coalesce(after, 'null'),
    ',"op":"', CASE change WHEN 'insert' THEN 'c' WHEN 'update' THEN 'u' ELSE 'd' END,
    '","source":', to_json(
      struct(
        'delta' AS connector,
        $catalog AS db,
        $schema AS schema,
        $table AS table,
        $table_id AS table_id,
        version,
        committed_at AS commit_timestamp,
        unix_millis(committed_at) AS ts_ms
      ),
      $options
    ),
    '}}'
  ) AS value
FROM {paired}
