-- Merges quarantined records into a quarantine that may have them: a rebuild, or a replay, has validated them again.
-- The columns are named, so that a column which others added does not break it.
-- In: `quarantine`, `records` (see stream_quarantined.sql).
MERGE INTO $quarantine AS target
USING ($records) AS source
ON target.topic = source.topic AND target.partition = source.partition AND target.offset = source.offset
WHEN MATCHED THEN UPDATE SET reasons = source.reasons, replayed_at = NULL
WHEN NOT MATCHED THEN INSERT
  (key, value, headers, topic, partition, offset, `timestamp`, reasons, quarantined_at)
  VALUES (key, value, headers, topic, partition, offset, `timestamp`, reasons, quarantined_at)
