-- Merges accepted rows of a batch into the table: of the records with one key, the last by Kafka's timestamp wins.
-- The columns are named, so that a column which others added does not break it.
-- In: `target`, `validated`, `columns`, and `selected`, their expressions; `same_key` and `bounded`, conditions, of which the second lets Delta read only files
-- that may have keys of the batch; `updates`, assignments of the columns that are no keys.
MERGE INTO $target AS target
USING (SELECT $selected FROM $validated WHERE decided_by IS NULL) AS source
ON $same_key AND $bounded
WHEN MATCHED AND struct(source.kafka_timestamp, source.partition, source.offset, source.topic)
  > struct(target.kafka_timestamp, target.partition, target.offset, target.topic) THEN UPDATE SET $updates
WHEN NOT MATCHED THEN INSERT ($columns) VALUES ($columns)
