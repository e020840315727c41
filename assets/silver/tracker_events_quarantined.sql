-- Records of a batch that an expectation sets aside, as quarantine has them.
-- In: `validated`, `quarantined` (the condition).
SELECT
  key, value, headers, topic, partition, offset, kafka_timestamp AS `timestamp`, failed AS reasons,
  current_timestamp() AS quarantined_at
FROM $validated WHERE $quarantined
