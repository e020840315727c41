-- An event for each number, ten a second from 2026 on, of a hundred users in turn.
-- In: {counter}, the counter as `value`; `first`, the offset of its 0.
WITH counted AS (SELECT value + $first AS n FROM {counter}),
timed AS (SELECT n, 1767225600000 + n * 100 AS ms FROM counted)
SELECT
  CAST(concat('user-', lpad(CAST(n % 100 AS STRING), 6, '0')) AS BINARY) AS key,
  CAST(to_json(named_struct(
    'time', ms, 'model', element_at(array('a', 'b', 'c'), CAST(n % 3 AS INT) + 1))) AS BINARY) AS value,
  $topic AS topic, 0 AS partition, n AS offset, timestamp_millis(ms) AS timestamp, 0 AS timestamp_type,
  CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
FROM timed
