-- All rows of the ledger, each once. seq: the order in which they came here, which means nothing.
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, table_id TEXT NOT NULL, path TEXT NOT NULL, fingerprint TEXT NOT NULL, sha256 TEXT NOT NULL,
    size INTEGER NOT NULL, status TEXT NOT NULL, rows INTEGER NOT NULL, reason TEXT NOT NULL, version INTEGER NOT NULL,
    batch_id TEXT NOT NULL, conflicts_with TEXT NOT NULL, declaration TEXT NOT NULL
);
CREATE UNIQUE INDEX entries_once ON entries (table_id, path, fingerprint, sha256, status, version, declaration);
CREATE INDEX entries_by_content ON entries (table_id, sha256);
-- With seq, as every index has it: a table's newest entries come first at its end.
CREATE INDEX entries_by_table ON entries (table_id);
CREATE INDEX entries_repeated ON entries (table_id) WHERE status = 'repeated';
CREATE INDEX entries_refused ON entries (table_id, path) WHERE status = 'refused';

-- The contents whose rows are in a bronze table: seq is that of the LOADED entry.
CREATE TABLE held (
    table_id TEXT NOT NULL, sha256 TEXT NOT NULL, path TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (table_id, sha256)
) WITHOUT ROWID;
CREATE INDEX held_by_path ON held (table_id, path);

-- The newest version of each bronze table whose entries are here; those of all earlier versions are, too.
CREATE TABLE copied (table_id TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;

-- Sums of the entries, so that nobody counts them.
CREATE TABLE totals (
    status TEXT PRIMARY KEY, files INTEGER NOT NULL, rows INTEGER NOT NULL, size INTEGER NOT NULL
) WITHOUT ROWID;

-- The ledger's version up to which its rows are here; one row.
CREATE TABLE indexed (version INTEGER NOT NULL);
INSERT INTO indexed VALUES (-1);
