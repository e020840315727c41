"""The index of the ledger: a local SQLite file that finds entries by path and by content, however many there are.

The ledger is a Delta table with a file for each load, and SHA-256 sums have no order: to find one, a query would read them
all. The index has read them once, and reads only what later versions of the ledger have added. It is a cache: if it is lost
or damaged, it is built again from the table.
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.row_changes import appended_files
from ratify_lakehouse.engines.duckdb.data_file_rows import rows_of_files
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, LedgerEntry, Status

_LAYOUT = 2
_FILLED = ("entries", "held", "copied", "totals")
_SCHEMA = Path(__file__).with_suffix(".sql")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCKED_S = 60
_PARAMETERS = 500
# More new versions than these are read faster by a scan of the table.
_VERSIONS_READ_SINGLY = 50
LEDGER_COLUMNS = (
    "table_id, path, fingerprint, sha256, coalesce(bytes, 0), status, coalesce(rows, 0), coalesce(reason, ''), "
    "coalesce(version, -1), coalesce(batch_id, ''), coalesce(conflicts_with, ''), coalesce(declaration, '')"
)
"""What is read of a row of the ledger: the table's id, and the attributes of a LedgerEntry."""

_ROWS = f"SELECT {LEDGER_COLUMNS} FROM {{rows}}"
_ENTRY = "table_id, path, fingerprint, sha256, size, status, rows, reason, version, batch_id, conflicts_with, declaration"


class LedgerIndex:
    """An open index, as of one version of the ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._con = connection

    @classmethod
    @contextmanager
    def opened(cls, session: DuckDBSession, *, latest: bool = True) -> Generator["LedgerIndex"]:
        """Open the index as of the ledger's latest version, or as of the latest that this engine has seen.

        Raises:
            As DeltaLog.refresh; QueryFailed.
        """
        log = session.log(LANDED_FILES)
        folder = session.home / "ledger"
        folder.mkdir(parents=True, exist_ok=True)
        # Each ledger has its own: one that is dropped and created again has another id.
        snapshot = log.refresh() if latest or log.last is None else log.last
        path = folder / f"{snapshot.uuid}.sqlite"
        try:
            connection = _connected(path)
            _update(connection, session, log)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                raise
            for file in folder.glob(f"{path.name}*"):
                file.unlink(missing_ok=True)
            connection = _connected(path)
            _update(connection, session, log)
        with closing(connection):
            yield cls(connection)

    def held(self, table_id: str, paths: Iterable[str], contents: Iterable[str]) -> list[LedgerEntry]:
        """Return the entries whose rows are in a bronze table, among those with these paths or these SHA-256."""
        held = "seq IN (SELECT seq FROM held%s WHERE table_id = ? AND {among})"
        # Left to itself, SQLite reads all rows of the table in the primary key's order.
        found = self._among(held % " INDEXED BY held_by_path", table_id, "path", paths)
        found += self._among(held % "", table_id, "sha256", contents)
        return list({entry.sha256: entry for entry in found}.values())

    def all_held(self, table_id: str) -> list[LedgerEntry]:
        """Return all entries whose rows are in a bronze table."""
        return self._entries("seq IN (SELECT seq FROM held WHERE table_id = ?)", [table_id])

    def entries(self, table_id: str, paths: Iterable[str]) -> list[LedgerEntry]:
        """Return all entries of paths."""
        return self._among("table_id = ? AND {among}", table_id, "path", paths)

    def entries_of_contents(self, table_id: str, sha256s: Iterable[str]) -> list[LedgerEntry]:
        """Return all entries of contents."""
        return self._among("table_id = ? AND {among}", table_id, "sha256", sha256s)

    def refused_paths(self, table_id: str) -> list[str]:
        """Return the paths with a file that was ever refused."""
        rows = self._con.execute("SELECT DISTINCT path FROM entries WHERE table_id = ? AND status = 'refused'", [table_id])
        return [path for (path,) in rows]

    def repeats(self, table_id: str) -> int:
        """Return the number of a table's entries REPEATED."""
        # Left to itself, SQLite reads all of the table's entries in another index.
        counted = "SELECT count(*) FROM entries INDEXED BY entries_repeated WHERE table_id = ? AND status = 'repeated'"
        return int(self._con.execute(counted, [table_id]).fetchone()[0])

    def all_entries(self, table_id: str) -> list[LedgerEntry]:
        """Return all entries of a bronze table."""
        return self._entries("table_id = ?", [table_id])

    def latest_entries(self, table_id: str, limit: int) -> list[LedgerEntry]:
        """Return the newest entries of a bronze table, newest first."""
        newest = "SELECT seq FROM entries INDEXED BY entries_by_table WHERE table_id = ? ORDER BY seq DESC LIMIT ?"
        return self._entries(f"seq IN ({newest}) ORDER BY seq DESC", [table_id, limit])

    def copied_version(self, table_id: str) -> int:
        """Return the newest version of a bronze table that has entries here; -1 if none has."""
        found = self._con.execute("SELECT version FROM copied WHERE table_id = ?", [table_id]).fetchone()
        return int(found[0]) if found else -1

    def totals(self) -> list[tuple[str, int, int, int]]:
        """Return, for each status, the numbers of entries, of their rows and of their bytes."""
        return self._con.execute("SELECT status, files, rows, size FROM totals").fetchall()

    def _among(self, condition: str, table_id: str, column: str, values: Iterable[str]) -> list[LedgerEntry]:
        """The entries of a condition in which `{among}` says that a column has one of these values."""
        found, distinct = list[LedgerEntry](), list(dict.fromkeys(values))
        for at in range(0, len(distinct), _PARAMETERS):
            some = distinct[at : at + _PARAMETERS]
            among = f"{column} IN ({', '.join('?' * len(some))})"
            found += self._entries(condition.format(among=among), [table_id, *some])
        return found

    def _entries(self, condition: str, parameters: Sequence[object]) -> list[LedgerEntry]:
        return [entry_of(row) for row in self._con.execute(f"SELECT {_ENTRY} FROM entries WHERE {condition}", parameters)]


def entry_of(row: tuple[Any, ...]) -> LedgerEntry:
    """Return the entry in a row of LEDGER_COLUMNS."""
    _, path, fingerprint, sha256, size, status, *more = row
    return LedgerEntry(path, fingerprint, sha256, size, Status(status), *more)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_LOCKED_S, isolation_level=None)
    # A new file takes up its log only while nobody else has it open, and here SQLite does not wait by itself.
    for attempt in Retrying(
        retry=retry_if_exception(_is_locked), wait=wait_random(0, 0.05), stop=stop_after_delay(_LOCKED_S), reraise=True
    ):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if not _has_schema(connection):
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been faster.
        if not _has_schema(connection):
            # One of an earlier layout is built again.
            for table in (*_FILLED, "indexed"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _SCHEMA.read_text().split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        connection.execute("COMMIT")
    return connection


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _has_schema(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA user_version").fetchone() == (_LAYOUT,)


def _update(connection: sqlite3.Connection, session: DuckDBSession, log: DeltaLog) -> None:
    """Read the rows that the ledger has and the index has not."""
    if _indexed(connection) >= log.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        indexed = _indexed(connection)
        if indexed < log.version:
            rows = _added_rows(session, log, indexed)
            if rows is None:
                for table in _FILLED:
                    connection.execute(f"DELETE FROM {table}")
                rows = _all_rows(session, log)
            _insert(connection, rows)
            connection.execute("UPDATE indexed SET version = ?", [log.version])
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _indexed(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT version FROM indexed").fetchone()[0])


def _added_rows(session: DuckDBSession, log: DeltaLog, indexed: int) -> list[tuple[Any, ...]] | None:
    """The rows that the ledger's versions after `indexed` have added; None if the whole table must be read: there are too
    many of them, the log has lost one, or one has changed rows."""
    if log.version - indexed > _VERSIONS_READ_SINGLY:
        return None
    files = appended_files(log, indexed, log.version)
    if files is None:
        return None
    with suppress(FileNotFoundError):
        return rows_of_files(session, log, [file.path for file in files], _ROWS)
    return None


def _all_rows(session: DuckDBSession, log: DeltaLog) -> list[tuple[Any, ...]]:
    """All rows of the ledger's latest version, or of a later one: what is newer is read again, and left out."""
    files = log.files(log.last or log.refresh())
    if log.storage.local and not any(file.has_deletion_vector for file in files):
        # Without the attached catalog, which would read the log once more.
        return rows_of_files(session, log, [file.path for file in files], _ROWS)
    return session.rows(_ROWS.format(rows=attached(LANDED_FILES.table_name)))


def _insert(connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
    copied = dict[str, int](connection.execute("SELECT table_id, version FROM copied").fetchall())
    newest = dict(copied)
    # What a version withdraws it has not loaded: the order within a version does not matter.
    for row in sorted(rows, key=lambda row: row[8]):
        table_id, path, sha256, size, status, count, version = row[0], row[1], row[3], row[4], row[5], row[6], row[8]
        if status in (Status.LOADED, Status.WITHDRAWN):
            if version <= copied.get(table_id, -1):
                continue
            newest[table_id] = version
        inserted = connection.execute(f"INSERT OR IGNORE INTO entries VALUES (NULL, {', '.join('?' * len(row))})", row)
        if not inserted.rowcount:
            continue
        seq = inserted.lastrowid
        if status == Status.LOADED:
            connection.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", (table_id, sha256, path, seq))
        elif status == Status.WITHDRAWN:
            connection.execute("DELETE FROM held WHERE table_id = ? AND sha256 = ?", (table_id, sha256))
        connection.execute(
            "INSERT INTO totals VALUES (?, 1, ?, ?) ON CONFLICT DO UPDATE "
            "SET files = files + 1, rows = rows + excluded.rows, size = size + excluded.size",
            (status, count, size),
        )
    connection.executemany("INSERT OR REPLACE INTO copied VALUES (?, ?)", newest.items())
