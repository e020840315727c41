-- The files of a bronze table of which an older version of the ledger says that they landed otherwise than it says now.
-- In: $ledger, its table at a version; $table_id, the bronze table's id in it; $since, the older version; $version, the version
-- of bronze that was read then: what newer ones added is known as their rows. At most $most.
-- A content's place in the landing order is its last entry's, also one of status repeated (see landing_order.sql).
WITH entries AS (
  SELECT path, sha256, status, version, _metadata.row_commit_version > $since AS is_new
  FROM $ledger WHERE table_id = $table_id AND status IN ('loaded', 'repeated')
)
SELECT DISTINCT path FROM entries
WHERE status = 'loaded' AND version <= $version AND sha256 IN (SELECT sha256 FROM entries WHERE is_new)
LIMIT $most
