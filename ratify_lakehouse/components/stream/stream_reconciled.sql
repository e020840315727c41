-- What became of a stream's records (DuckDB SQL), according to its ledger and to the tables themselves.
-- In: {bronze}, {silver}, {quarantine}, {ledger}; {keys} of silver; {streams}, names in the ledger. A replay's ledger entries take records out of quarantine.
WITH places AS (
  SELECT topic, partition, "offset", kafka_timestamp AS "timestamp" FROM {silver}
  UNION ALL
  SELECT topic, partition, "offset", "timestamp" FROM {quarantine} WHERE replayed_at IS NULL
)
SELECT
  (SELECT count(*) FROM {bronze}) AS bronze,
  (SELECT count(*) FROM {silver}) AS silver,
  (SELECT count(*) FROM {quarantine} WHERE replayed_at IS NULL) AS quarantine,
  (SELECT count(*) FROM places ANTI JOIN {bronze} AS b USING (topic, partition, "offset", "timestamp")) AS orphans,
  greatest(
    (SELECT count(*) - count(DISTINCT (topic, partition, "offset", "timestamp")) FROM places),
    (SELECT count(*) - count(DISTINCT row({keys})) FROM {silver})) AS doubled,
  coalesce(sum(records), 0)::BIGINT AS records,
  coalesce(sum(accepted), 0)::BIGINT AS accepted,
  coalesce(sum(dropped), 0)::BIGINT AS dropped,
  coalesce(sum(quarantined), 0)::BIGINT AS quarantined,
  coalesce(sum(duplicates), 0)::BIGINT AS duplicates,
  coalesce(sum(late), 0)::BIGINT AS late
FROM {ledger} WHERE stream IN ({streams})
