-- Records of a batch that an expectation sets aside. One that is there is one that a rebuild, or a replay, has judged again.
-- The columns are named, so that one which others have added stops nothing.
-- In: `quarantine`, `judged`, `quarantined` (the condition).
MERGE INTO $quarantine AS target
USING (
  SELECT
    key, value, headers, topic, partition, offset, kafka_timestamp AS `timestamp`, failed AS reasons,
    current_timestamp() AS quarantined_at
  FROM $judged WHERE $quarantined
) AS source
ON target.topic = source.topic AND target.partition = source.partition AND target.offset = source.offset
WHEN MATCHED THEN UPDATE SET reasons = source.reasons, replayed_at = NULL
WHEN NOT MATCHED THEN INSERT
  (key, value, headers, topic, partition, offset, `timestamp`, reasons, quarantined_at)
  VALUES (key, value, headers, topic, partition, offset, `timestamp`, reasons, quarantined_at)
