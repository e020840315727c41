-- The heart rates of each minute and model.
-- In: {events}. A tumbling window over the events' own times; those without a model are one group.
SELECT
  window.start AS minute_utc, coalesce(model, 'unknown') AS model,
  count(*) AS events,
  count(DISTINCT user_id) AS users,
  avg(heart_bpm) AS mean_heart_bpm,
  min(heart_bpm) AS min_heart_bpm,
  max(heart_bpm) AS max_heart_bpm
FROM {events}
GROUP BY window(time, '1 minute'), coalesce(model, 'unknown')
