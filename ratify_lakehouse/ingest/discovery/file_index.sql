-- Each file as the last listing showed it.
CREATE TABLE seen (path TEXT PRIMARY KEY, size INTEGER NOT NULL, stamp NOT NULL) WITHOUT ROWID;

-- The files that are not settled: not requested yet (request is null), or requested, or given up after failed runs.
-- since: when this version was first seen; observed: when it was last seen; complete: a notification announced it.
CREATE TABLE work (
    path TEXT PRIMARY KEY, source TEXT NOT NULL, size INTEGER NOT NULL, fingerprint TEXT NOT NULL, since REAL NOT NULL,
    observed REAL NOT NULL, complete INTEGER NOT NULL, request INTEGER, given_up INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX work_not_asked ON work (source, since, path) WHERE request IS NULL;
CREATE INDEX work_by_request ON work (request) WHERE request IS NOT NULL;

-- Runs that were requested and have not succeeded; tick: the sensor's, at the last request. An id is never used again.
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT, attempt INTEGER NOT NULL, tick INTEGER NOT NULL, asked_at REAL NOT NULL
);

-- Notifications that stay in their queue until their files are settled.
CREATE TABLE messages (id TEXT PRIMARY KEY, receipt TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE message_files (message TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY (message, path)) WITHOUT ROWID;

-- How far the listing is; one row.
CREATE TABLE listing (scope TEXT NOT NULL, started REAL, at TEXT, baseline TEXT NOT NULL);
INSERT INTO listing VALUES ('', NULL, NULL, '');
