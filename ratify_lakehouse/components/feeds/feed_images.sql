SELECT
  _commit_version AS version,
  _commit_timestamp AS committed_at,
  _change_type IN ('insert', 'update_postimage') AS is_after,
  to_json(struct($keys), $options) AS key,
  to_json(struct($columns), $options) AS row
FROM {rows}
