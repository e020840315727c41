-- Records of lines that are their values; a field of a value in JSON may be the key, and another the time.
-- In: `lines`, see file_lines.sql; `key` and `time`, expressions over the line's text; `parsed_time`, the time in the text given_time.
WITH read AS (SELECT *, $key AS given_key, $time AS given_time FROM $lines),
timed AS (SELECT *, $parsed_time AS parsed_time FROM read)
SELECT
  CAST(given_key AS BINARY) AS key, value, topic, 0 AS partition, offset, coalesce(parsed_time, modified) AS timestamp,
  IF(parsed_time IS NULL, 1, 0) AS timestamp_type, CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
FROM timed
