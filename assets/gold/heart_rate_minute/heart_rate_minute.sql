-- The heart rates of each minute, by the events' own times, and model; those without a model are one group.
SELECT
  date_trunc('MINUTE', time) AS minute_utc, coalesce(model, 'unknown') AS model,
  count(*) AS events,
  count(DISTINCT user_id) AS users,
  avg(heart_bpm) AS mean_heart_bpm,
  min(heart_bpm) AS min_heart_bpm,
  max(heart_bpm) AS max_heart_bpm
FROM silver.tracker_events
GROUP BY date_trunc('MINUTE', time), coalesce(model, 'unknown')
