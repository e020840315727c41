-- What the trackers of a model sent in a day (UTC).
SELECT
  CAST(time AS DATE) AS day_utc, coalesce(model, 'unknown') AS model,
  count(*) AS events,
  count(DISTINCT user_id) AS users,
  count(DISTINCT version) AS versions,
  CAST(sum(kcal) AS BIGINT) AS kcal,
  avg(heart_bpm) AS mean_heart_bpm,
  max(time) AS last_event_at
FROM silver.tracker_events
GROUP BY CAST(time AS DATE), coalesce(model, 'unknown')
