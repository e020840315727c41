-- What silver and quarantine hold of records that bronze does not have, by partition: it could not be made from bronze again.
-- In: `silver`, `quarantine`, `bronze`. A topic that was made anew has the same offsets, at other times.
SELECT topic, partition, count(*) AS records, min(offset) AS first, max(offset) AS last
FROM (
  SELECT topic, partition, offset, kafka_timestamp AS `timestamp` FROM $silver
  UNION ALL
  SELECT topic, partition, offset, `timestamp` FROM $quarantine WHERE replayed_at IS NULL
) AS held
WHERE NOT EXISTS (
  SELECT 1 FROM $bronze AS b
  WHERE b.topic = held.topic AND b.partition = held.partition AND b.offset = held.offset AND b.`timestamp` = held.`timestamp`
)
GROUP BY topic, partition
ORDER BY topic, partition
