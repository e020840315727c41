-- Every record of the tracker's topics, parsed: as JSON, as JSON in the envelope of Kafka Connect ({"schema", "payload"}), or
-- as Avro, each record by its first byte. Nothing here fails, whatever the bytes are: a record that cannot be read has
-- `readable` false, one with a value of another type than declared has `typed` false.
WITH given AS (
  SELECT
    topic, partition, offset, `timestamp` AS kafka_timestamp, key, value, headers,
    try_validate_utf8(CAST(key AS STRING)) AS user_id,
    -- Zero is the first byte of Confluent's header, two that of Avro without it: JSON has neither.
    substring(value, 1, 1) IN (X'00', X'02') AS is_avro,
    CASE WHEN substring(value, 1, 1) = X'00' THEN substring(value, 6) ELSE value END AS avro_body
  FROM bronze.tracker_events_raw
),
texts AS (
  SELECT *, CASE WHEN NOT is_avro THEN try_validate_utf8(CAST(value AS STRING)) END AS text FROM given
),
read AS (
  SELECT
    *,
    from_json(
      text,
      'time STRING, version STRING, model STRING, heart_bpm INT, kcal INT, `schema` STRING,
       payload STRUCT<time: STRING, version: STRING, model: STRING, heart_bpm: INT, kcal: INT>, _corrupt STRING',
      map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt', 'allowSingleQuotes', 'false')) AS json,
    json_object_keys(text) AS fields,
    -- Confluent's header is skipped, not looked up.
    CASE WHEN is_avro THEN from_avro(
      avro_body,
      '{"type": "record", "name": "TrackerEvent", "fields": [
         {"name": "time", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
         {"name": "version", "type": ["null", "string"]},
         {"name": "model", "type": ["null", "string"]},
         {"name": "heart_bpm", "type": ["null", "int"]},
         {"name": "kcal", "type": ["null", "int"]}]}',
      map('mode', 'PERMISSIVE')) END AS avro
  FROM texts
),
unwrapped AS (
  SELECT
    * EXCEPT (fields),
    json.`schema` IS NOT NULL AND json.payload IS NOT NULL AS is_wrapped,
    CASE WHEN json.`schema` IS NOT NULL AND json.payload IS NOT NULL
      THEN json_object_keys(get_json_object(text, '$.payload')) ELSE fields END AS fields
  FROM read
),
events AS (
  SELECT
    * EXCEPT (fields),
    CASE WHEN is_wrapped THEN json.payload.time ELSE json.time END AS time_text,
    -- A string of Avro need not be UTF-8, which other engines require.
    CASE WHEN is_avro THEN make_valid_utf8(avro.version) WHEN is_wrapped THEN json.payload.version
      ELSE json.version END AS version,
    CASE WHEN is_avro THEN make_valid_utf8(avro.model) WHEN is_wrapped THEN json.payload.model ELSE json.model END AS model,
    CASE WHEN is_avro THEN avro.heart_bpm WHEN is_wrapped THEN json.payload.heart_bpm ELSE json.heart_bpm END AS heart_bpm,
    CASE WHEN is_avro THEN avro.kcal WHEN is_wrapped THEN json.payload.kcal ELSE json.kcal END AS kcal,
    coalesce(array_except(fields, array('time', 'version', 'model', 'heart_bpm', 'kcal')), array()) AS unknown_fields,
    CASE WHEN is_avro
      -- What cannot be decoded is NULL in every field.
      THEN coalesce(CAST(avro.time AS STRING), avro.version, avro.model, CAST(avro.heart_bpm AS STRING),
        CAST(avro.kcal AS STRING)) IS NOT NULL
      ELSE json IS NOT NULL AND fields IS NOT NULL END AS readable
  FROM unwrapped
),
-- A number counts milliseconds since 1970, as Kafka Connect writes it. Numbers outside of the years 1 to 9999 give NULL, and so
-- does '10:00', which a cast alone would read as of today. What looks like a date is not cast to a number: a failed cast is slow.
millis AS (
  SELECT *, CASE WHEN time_text NOT LIKE '____-__-__%' THEN try_cast(time_text AS BIGINT) END AS time_ms FROM events
),
timed AS (
  SELECT
    *,
    CASE WHEN is_avro THEN avro.time
      WHEN time_ms BETWEEN -62135596800000 AND 253402300799999 THEN timestamp_millis(time_ms)
      WHEN time_text LIKE '____-__-__%' THEN try_cast(time_text AS TIMESTAMP) END AS time
  FROM millis
)
SELECT
  topic, partition, offset, kafka_timestamp, key, value, headers, user_id, time, version, model, heart_bpm, kcal,
  unknown_fields, readable,
  readable AND (is_avro OR json._corrupt IS NULL AND (time_text IS NULL OR time IS NOT NULL)) AS typed
FROM timed
