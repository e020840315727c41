-- The heart rates of each minute, by the events' own times, and model, as gold.heart_rate_minute has them: Flink reads the
-- records of the topic itself. A minute's row is written once, when no more events of it are on time. Values in JSON only;
-- what silver.tracker_events quarantines or drops is left out here.
WITH given AS (
  SELECT
    key AS user_id, `time`, `timestamp`, processed_at,
    JSON_VALUE(`value`, '$.time') AS time_text,
    JSON_VALUE(`value`, '$.model') AS model,
    -- In brackets, so that a text differs from a number.
    COALESCE(JSON_QUERY(`value`, '$.heart_bpm' WITH UNCONDITIONAL WRAPPER), '[null]') AS heart_bpm,
    COALESCE(JSON_QUERY(`value`, '$.kcal' WITH UNCONDITIONAL WRAPPER), '[null]') AS kcal
  FROM events
  WHERE key <> '' AND `time` <= `timestamp` + INTERVAL '5' MINUTE
),
typed AS (
  SELECT
    user_id, `time`, time_text, processed_at, COALESCE(model, 'unknown') AS model,
    TRY_CAST(REGEXP_EXTRACT(heart_bpm, '^\[(-?\d+)\]$', 1) AS INT) AS heart_bpm,
    TRY_CAST(REGEXP_EXTRACT(kcal, '^\[(-?\d+)\]$', 1) AS INT) AS kcal
  FROM given
  WHERE REGEXP(heart_bpm, '^\[(-?\d+|null)\]$') AND REGEXP(kcal, '^\[(-?\d+|null)\]$')
),
-- Of several records of one event the first: those that follow are the same.
numbered AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id, time_text ORDER BY processed_at) AS n
  FROM typed
  WHERE (heart_bpm IS NULL OR heart_bpm BETWEEN 20 AND 250) AND (kcal IS NULL OR kcal >= 0)
),
accepted AS (
  SELECT user_id, `time`, model, heart_bpm FROM numbered WHERE n = 1
)
SELECT
  CAST(window_start AS TIMESTAMP_LTZ(6)) AS minute_utc, model,
  COUNT(*) AS events,
  COUNT(DISTINCT user_id) AS users,
  AVG(CAST(heart_bpm AS DOUBLE)) AS mean_heart_bpm,
  MIN(heart_bpm) AS min_heart_bpm,
  MAX(heart_bpm) AS max_heart_bpm
FROM TABLE(TUMBLE(TABLE accepted, DESCRIPTOR(`time`), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, model
