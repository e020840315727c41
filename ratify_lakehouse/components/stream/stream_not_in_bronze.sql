-- Records of a stream's table and of its quarantine that bronze does not have, by partition: a rebuild would lose them.
-- In: `target`, `quarantine`, `bronze`. A topic that was created again has the same offsets, at other times.
SELECT topic, partition, count(*) AS records, min(offset) AS first, max(offset) AS last
FROM (
  SELECT topic, partition, offset, kafka_timestamp AS `timestamp` FROM $target
  UNION ALL
  SELECT topic, partition, offset, `timestamp` FROM $quarantine WHERE replayed_at IS NULL
) AS present
WHERE NOT EXISTS (
  SELECT 1 FROM $bronze AS b
  WHERE b.topic = present.topic AND b.partition = present.partition AND b.offset = present.offset AND b.`timestamp` = present.`timestamp`
)
GROUP BY topic, partition
ORDER BY topic, partition
