-- Merges accepted events of a batch into silver: of the records with one key, the last by Kafka's timestamp wins.
-- The columns are named, so that a column which others added does not break it.
-- In: `silver`, `validated`; `lower` and `upper` bound the batch's times (microseconds), so that only files with such times are read.
MERGE INTO $silver AS target
USING (
  SELECT user_id, time, version, model, heart_bpm, kcal, topic, partition, offset, kafka_timestamp
  FROM $validated WHERE decided_by IS NULL
) AS source
ON target.user_id = source.user_id AND target.time = source.time
  AND target.time BETWEEN timestamp_micros($lower) AND timestamp_micros($upper)
WHEN MATCHED AND struct(source.kafka_timestamp, source.partition, source.offset, source.topic)
  > struct(target.kafka_timestamp, target.partition, target.offset, target.topic) THEN UPDATE SET
  version = source.version, model = source.model, heart_bpm = source.heart_bpm, kcal = source.kcal, topic = source.topic,
  partition = source.partition, offset = source.offset, kafka_timestamp = source.kafka_timestamp
WHEN NOT MATCHED THEN INSERT
  (user_id, time, version, model, heart_bpm, kcal, topic, partition, offset, kafka_timestamp)
  VALUES (user_id, time, version, model, heart_bpm, kcal, topic, partition, offset, kafka_timestamp)
