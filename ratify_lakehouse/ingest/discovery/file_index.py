"""The index of discovery: each file as it was last seen, and the runs that were requested; an SQLite file of the sensor.

It is a cache: the table's log alone ensures that a file's rows are loaded once. If the index is lost, files are listed and
requested again, and their run leaves out those that are loaded.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ratify_lakehouse.errors import TransientError
from ratify_lakehouse.landing.file_listing import Listed
from ratify_lakehouse.landing.landing_zone import LandedFile, landed

LAST = "\U0010ffff"
"""Sorts after every name."""

_SCHEMA = Path(__file__).with_suffix(".sql")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class IndexLost(TransientError):
    """The index was damaged and removed: the next look lists everything again."""


@dataclass(frozen=True)
class Look:
    """How files are looked at.

    Attributes:
        now: Seconds since 1970.
        settle_seconds: A listed file is ready when two looks, at least so far apart, saw it unchanged.
        source_of: The source that a path belongs to; None: it is not discovered.
        existing_before: Files that last changed before this time (seconds since 1970) are indexed, but not loaded.
    """

    now: float
    settle_seconds: float
    source_of: Callable[[str], str | None]
    existing_before: float | None = None


@dataclass(frozen=True)
class LoadRequest:
    """A requested run: its files by source, its attempt, and the tick and time at which it was last requested."""

    id: int
    attempt: int
    tick: int
    asked_at: float
    files: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ListingProgress:
    """How far the listing is.

    Attributes:
        scope: What it lists; another scope starts from the beginning.
        started: When the last listing began (seconds since 1970).
        at: The last path listed; None if no listing is under way.
        baseline: The area that was listed completely before; empty before the first one.
    """

    scope: str
    started: float | None
    at: str | None
    baseline: str


@dataclass(frozen=True)
class Counts:
    """Files known, files not requested yet, runs requested and not known to have succeeded, files given up."""

    known: int
    waiting: int
    requests: int
    given_up: int


class FileIndex:
    """An open index. Every method is one transaction, or part of the one that `transaction` opens."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self.name = name
        self._con = connection

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, name: str | None) -> Generator["FileIndex"]:
        """Open the index of a name, or a new one under a new name if there is none.

        A request of a lost index and one of its successor must not share an id: Dagster runs no run key twice.

        Raises:
            IndexLost: it is damaged.
        """
        folder.mkdir(parents=True, exist_ok=True)
        existing = name if name and (folder / f"{name}.sqlite").exists() else None
        name = existing or uuid4().hex[:12]
        path = folder / f"{name}.sqlite"
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # Not NORMAL: after a power failure the id of a lost request would be used again.
                connection.execute("PRAGMA synchronous = FULL")
                if not existing:
                    connection.executescript(f"BEGIN; {_SCHEMA.read_text()} PRAGMA user_version = 1; COMMIT;")
                if connection.execute("PRAGMA user_version").fetchone() != (1,):
                    raise _lost(path)
                yield cls(name, connection)
            except sqlite3.DatabaseError as error:
                # Python's own errors, such as a wrong number of parameters, have no code.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                    raise
                raise _lost(path) from error

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All or nothing of what the block does."""
        if self._con.in_transaction:
            yield
            return
        self._con.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._con.execute("COMMIT")

    def observe(self, look: Look, page: Sequence[Listed], after: str, through: str) -> None:
        """Index what a listing shows between two paths: files that are new, have changed, or are missing."""
        between = "path > ? AND path <= ?"
        rows = self._con.execute(f"SELECT path, size, stamp, NULL FROM seen WHERE {between} ORDER BY path", (after, through))
        # Nearly always nothing has changed: comparing whole lists takes a third of the time.
        changed, missing = ([], []) if (seen := rows.fetchall()) == page else _differences(seen, page)
        settling = f"{between} AND request IS NULL AND NOT complete AND observed - since < ?"
        bounds = (after, through, look.settle_seconds)
        unsettled = look.settle_seconds and self._con.execute(f"SELECT 1 FROM work WHERE {settling}", bounds).fetchone()
        if not (changed or missing or unsettled):
            return
        with self.transaction():
            self._con.executemany("DELETE FROM seen WHERE path = ?", ((path,) for path in missing))
            self._con.executemany("DELETE FROM work WHERE path = ?", ((path,) for path in missing))
            self._con.execute(f"UPDATE work SET observed = ? WHERE {settling}", (look.now, *bounds))
            for file in changed:
                if source := look.source_of(file.path):
                    self._take(look, file, source, complete=False)

    def announce(self, look: Look, file: Listed) -> None:
        """Index one file that is known to be complete."""
        source = look.source_of(file.path)
        known = self._con.execute("SELECT size, stamp FROM seen WHERE path = ?", (file.path,)).fetchone()
        if known == (file.size, file.stamp):
            self._con.execute("UPDATE work SET complete = 1 WHERE path = ? AND NOT complete", (file.path,))
        elif source:
            with self.transaction():
                self._take(look, file, source, complete=True)

    def _take(self, look: Look, file: Listed, source: str, *, complete: bool) -> None:
        self._con.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (file.path, file.size, file.stamp))
        existed = look.existing_before is not None and (file.modified is None or file.modified < look.existing_before)
        if not existed:
            fingerprint = landed(file).fingerprint
            self._con.execute(
                "INSERT OR REPLACE INTO work (path, source, size, fingerprint, since, observed, complete) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (file.path, source, file.size, fingerprint, look.now, look.now, complete),
            )

    def ready(self, source: str, settle_seconds: float, limit: int) -> list[LandedFile]:
        """Return files of a source that are ready to be requested, in the order in which they were first seen."""
        rows = self._con.execute(
            "SELECT path, size, fingerprint FROM work WHERE source = ? AND request IS NULL "
            "AND (complete OR observed - since >= ?) ORDER BY since, path LIMIT ?",
            (source, settle_seconds, limit),
        )
        return [LandedFile(path, size, fingerprint) for path, size, fingerprint in rows]

    def not_requested(self, source: str) -> list[LandedFile]:
        """Return all files of a source that are not requested yet, ready or not."""
        return self.ready(source, 0, -1)

    def drop(self, files: Iterable[LandedFile]) -> None:
        """Take files as settled that were never requested; they are indexed again when they change."""
        with self.transaction():
            paths = ((file.path,) for file in files)
            self._con.executemany("DELETE FROM work WHERE path = ? AND request IS NULL", paths)

    def requests(self) -> list[LoadRequest]:
        """Return the requests whose runs are not known to have succeeded, with their files that have not changed."""
        rows = self._con.execute("SELECT id, attempt, tick, asked_at FROM requests ORDER BY id").fetchall()
        return [LoadRequest(*row, files=self._files(row[0])) for row in rows]

    def _files(self, request: int) -> dict[str, list[str]]:
        files = dict[str, list[str]]()
        for source, path in self._con.execute("SELECT source, path FROM work WHERE request = ? ORDER BY path", (request,)):
            files.setdefault(source, []).append(path)
        return files

    def ask(self, files: Mapping[str, Sequence[LandedFile]], tick: int, now: float) -> LoadRequest:
        """Record that a run is requested."""
        with self.transaction():
            added = self._con.execute("INSERT INTO requests (attempt, tick, asked_at) VALUES (1, ?, ?)", (tick, now))
            request = added.lastrowid or 0
            paths = ((request, file.path) for batch in files.values() for file in batch)
            self._con.executemany("UPDATE work SET request = ? WHERE path = ?", paths)
        return LoadRequest(request, 1, tick, now, {source: [file.path for file in batch] for source, batch in files.items()})

    def ask_again(self, request: LoadRequest, attempt: int, tick: int, now: float) -> LoadRequest:
        """Record that a run is requested again."""
        self._con.execute(
            "UPDATE requests SET attempt = ?, tick = ?, asked_at = ? WHERE id = ?", (attempt, tick, now, request.id)
        )
        return LoadRequest(request.id, attempt, tick, now, request.files)

    def settle(self, request: LoadRequest) -> None:
        """Record that the run succeeded."""
        with self.transaction():
            self._con.execute("DELETE FROM work WHERE request = ?", (request.id,))
            self._con.execute("DELETE FROM requests WHERE id = ?", (request.id,))

    def give_up(self, request: LoadRequest) -> None:
        """Record that the request is not repeated. Its files are requested again when they change."""
        with self.transaction():
            self._con.execute("UPDATE work SET given_up = 1 WHERE request = ?", (request.id,))
            self._con.execute("DELETE FROM requests WHERE id = ?", (request.id,))

    def counts(self) -> Counts:
        """Count what is known."""
        row = self._con.execute(
            "SELECT (SELECT count(*) FROM seen), (SELECT count(*) FROM work WHERE request IS NULL), "
            "(SELECT count(*) FROM requests), (SELECT count(*) FROM work WHERE request IS NOT NULL AND given_up)"
        ).fetchone()
        return Counts(*row)

    def awaits(self, message: str, receipt: str) -> bool:
        """Whether the message is known and its files are not settled; a new receipt replaces the old one."""
        return self._con.execute("UPDATE messages SET receipt = ? WHERE id = ?", (receipt, message)).rowcount > 0

    def await_files(self, message: str, receipt: str, paths: Sequence[str]) -> None:
        """Remember a message until its files are settled."""
        with self.transaction():
            self._con.execute("INSERT OR REPLACE INTO messages VALUES (?, ?)", (message, receipt))
            self._con.executemany("INSERT OR IGNORE INTO message_files VALUES (?, ?)", ((message, path) for path in paths))

    def settled_messages(self) -> list[tuple[str, str]]:
        """Return the id and receipt of each message whose files are all loaded, given up, or missing."""
        return self._con.execute(
            "SELECT id, receipt FROM messages WHERE NOT EXISTS (SELECT 1 FROM message_files AS f JOIN work "
            "ON work.path = f.path WHERE f.message = messages.id AND NOT work.given_up)"
        ).fetchall()

    def forget(self, message: str) -> None:
        """Forget a message."""
        with self.transaction():
            self._con.execute("DELETE FROM messages WHERE id = ?", (message,))
            self._con.execute("DELETE FROM message_files WHERE message = ?", (message,))

    @property
    def listing(self) -> ListingProgress:
        """How far the listing is."""
        scope, started, at, baseline = self._con.execute("SELECT scope, started, at, baseline FROM listing").fetchone()
        return ListingProgress(scope, started, at, baseline)

    def save_listing(self, listing: ListingProgress) -> None:
        """Save how far the listing is."""
        row = (listing.scope, listing.started, listing.at, listing.baseline)
        self._con.execute("UPDATE listing SET scope = ?, started = ?, at = ?, baseline = ?", row)


def _differences(
    seen: Sequence[tuple[str, int, str | float, None]], page: Sequence[Listed]
) -> tuple[list[Listed], list[str]]:
    """Return the files that are new or have changed, and the paths of those that are missing."""
    known = {path: (size, stamp) for path, size, stamp, _ in seen}
    changed = [file for file in page if known.pop(file.path, None) != (file.size, file.stamp)]
    return changed, list(known)


def _lost(path: Path) -> IndexLost:
    for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        part.unlink(missing_ok=True)
    return IndexLost(f"The index {path} is damaged and was removed; the next look lists the whole landing zone.")
