-- Records of lines that are their values; a field of a value in JSON may be the key, and another when it was made.
-- In: `lines`, see file_lines.sql; `key` and `time`, expressions over the line's text.
WITH read AS (SELECT *, $key AS given_key, $time AS given_time FROM $lines),
timed AS (
  SELECT
    *,
    CASE
      WHEN try_cast(given_time AS BIGINT) BETWEEN -62135596800000 AND 253402300799999
        THEN timestamp_millis(try_cast(given_time AS BIGINT))
      WHEN given_time LIKE '____-__-__%' THEN try_cast(given_time AS TIMESTAMP)
    END AS made
  FROM read
)
SELECT
  CAST(given_key AS BINARY) AS key, value, topic, 0 AS partition, offset, coalesce(made, modified) AS timestamp,
  IF(made IS NULL, 1, 0) AS timestamp_type, CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
FROM timed
