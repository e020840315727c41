-- What became of the tracker's records (DuckDB SQL), according to the stream's ledger and to the tables themselves.
-- In: {bronze}, {silver}, {quarantine}, {ledger}. A replay's ledger entries take records out of quarantine.
SELECT
  (SELECT count(*) FROM {bronze}) AS bronze,
  (SELECT count(*) FROM {silver}) AS silver,
  (SELECT count(*) FROM {quarantine} WHERE replayed_at IS NULL) AS quarantine,
  coalesce(sum(records), 0)::BIGINT AS records,
  coalesce(sum(accepted), 0)::BIGINT AS accepted,
  coalesce(sum(dropped), 0)::BIGINT AS dropped,
  coalesce(sum(quarantined), 0)::BIGINT AS quarantined,
  coalesce(sum(duplicates), 0)::BIGINT AS duplicates,
  coalesce(sum(late), 0)::BIGINT AS late
FROM {ledger} WHERE stream IN ('silver.tracker_events', 'silver.tracker_events.replay')
