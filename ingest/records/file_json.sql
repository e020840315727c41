-- Records of lines that are their values; a field of a value in JSON may be the key, and another when it was made.
-- In: `lines`, see file_lines.sql; `key` and `time`, expressions over the line's text; `made`, the time in the text given_time.
WITH read AS (SELECT *, $key AS given_key, $time AS given_time FROM $lines),
timed AS (SELECT *, $made AS made FROM read)
SELECT
  CAST(given_key AS BINARY) AS key, value, topic, 0 AS partition, offset, coalesce(made, modified) AS timestamp,
  IF(made IS NULL, 1, 0) AS timestamp_type, CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
FROM timed
