-- Records of a batch with their corrected values, for a rebuild: bronze itself never changes.
-- In: `batch`, `quarantine`. Only replayed corrections count.
SELECT b.key, coalesce(c.corrected, b.value) AS value, b.topic, b.partition, b.offset, b.`timestamp`, b.headers
FROM $batch AS b LEFT JOIN (
  SELECT topic, partition, offset, corrected FROM $quarantine WHERE corrected IS NOT NULL AND replayed_at IS NOT NULL
) AS c
ON b.topic = c.topic AND b.partition = c.partition AND b.offset = c.offset
