-- Records of a batch that an expectation quarantines, with quarantine's columns.
-- In: `validated`, `quarantined` (the condition).
SELECT
  key, value, headers, topic, partition, offset, kafka_timestamp AS `timestamp`, failed AS reasons,
  current_timestamp() AS quarantined_at
FROM $validated WHERE $quarantined
