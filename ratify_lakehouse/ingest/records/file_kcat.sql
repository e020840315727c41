-- Records of lines as `kcat -J` writes them. Where the record was in Kafka is added to its headers. A line that is no such
-- envelope becomes a record of its own.
-- In: `lines`, see file_lines.sql.
WITH read AS (
  SELECT
    *,
    from_json(
      text,
      'topic STRING, partition INT, offset BIGINT, tstype STRING, ts BIGINT, headers ARRAY<STRING>, key STRING,
       payload STRING') AS record
  FROM $lines
),
validated AS (
  SELECT
    *,
    record.topic IS NOT NULL AND record.partition IS NOT NULL AND record.offset IS NOT NULL AS wrapped,
    IF(record.ts BETWEEN 0 AND 253402300799999, timestamp_millis(record.ts), NULL) AS created_at
  FROM read
)
SELECT
  CAST(IF(wrapped, record.key, NULL) AS BINARY) AS key,
  IF(wrapped, CAST(record.payload AS BINARY), value) AS value,
  topic, 0 AS partition, offset,
  IF(wrapped, coalesce(created_at, modified), modified) AS timestamp,
  IF(wrapped AND created_at IS NOT NULL AND record.tstype = 'create', 0, 1) AS timestamp_type,
  IF(wrapped, concat(
    -- They come as key, value, key, value.
    transform(
      filter(transform(coalesce(record.headers, array()), (item, i) -> named_struct('i', i, 'item', item)), h -> h.i % 2 = 0),
      h -> named_struct('key', h.item, 'value', CAST(get(record.headers, h.i + 1) AS BINARY))),
    array(
      named_struct('key', 'kafka.topic', 'value', CAST(record.topic AS BINARY)),
      named_struct('key', 'kafka.partition', 'value', CAST(CAST(record.partition AS STRING) AS BINARY)),
      named_struct('key', 'kafka.offset', 'value', CAST(CAST(record.offset AS STRING) AS BINARY)))), NULL) AS headers
FROM validated
