"""Load batches: landed files become rows of bronze, each file exactly once, one commit for the whole batch.

A file is known by its bytes. Two Delta `txn` app ids are written for each in the commit that brings its rows: one for its
content and one for its path. So the same bytes are never loaded twice, under whatever name or by however many writers at
once, and other bytes under a name that was loaded before are refused rather than mixed with the first ones.
"""

import datetime as dt
import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from assets.bronze.csv_file import stage
from assets.bronze.sources import LANDED_FILES, Source
from resources.duckdb import ALIAS, DuckDB, DuckDBSession
from resources.errors import AlreadyLoaded, BadFile
from resources.landing import LandedFile, LandingZone
from resources.sql import literal

logger = logging.getLogger(__name__)

STAGE = "ratify_stage"
BOOK_STAGE = "ratify_book_stage"


class Status(StrEnum):
    """What became of a landed file."""

    LOADED = "loaded"
    REPEATED = "repeated"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class FileOutcome:
    """What became of one landed file; `rows` are those that it brought into bronze.

    `recovered`: an earlier attempt, which died before it could say so, had committed them.
    """

    path: str
    fingerprint: str
    sha256: str
    size: int
    batch_id: str
    status: Status = Status.LOADED
    rows: int = 0
    reason: str = ""
    recovered: bool = False

    @property
    def fresh(self) -> bool:
        """Whether its rows are still to be committed."""
        return self.status is Status.LOADED and not self.recovered

    @property
    def loads(self) -> tuple[str, str]:
        """The Delta app ids that keep the file from being loaded again."""
        return f"content:{self.sha256}", f"path:{self.path}"


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a load batch; `version` is the one its commit made, None where nothing was new."""

    batch_id: str
    files: tuple[FileOutcome, ...]
    version: int | None

    def count(self, status: Status) -> int:
        """Return how many of the files ended so."""
        return sum(file.status is status for file in self.files)

    @property
    def rows(self) -> int:
        """Rows that the batch brought into bronze."""
        return sum(file.rows for file in self.files)


def batches(files: Sequence[LandedFile], max_files: int, max_bytes: int) -> Iterator[list[LandedFile]]:
    """Split files into load batches of bounded count and size, in order; a file over the bound is a batch of its own."""
    batch, size = list[LandedFile](), 0
    for file in files:
        if batch and (len(batch) >= max_files or size + file.size > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def batch_id(source: Source, files: Sequence[LandedFile]) -> str:
    """Return the id of a load batch, the same whenever the same versions of the same files are loaded together."""
    content = "\n".join(f"{file.path}@{file.fingerprint}" for file in sorted(files))
    return f"{source.table.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def waiting(duckdb: DuckDB, landing: LandingZone, source: Source) -> list[LandedFile]:
    """Return the landed files of a source that the book does not know in their present version."""
    landed = landing.files(source.pattern)
    with duckdb.session() as session:
        known = set(
            session.rows(
                f"SELECT path, fingerprint FROM {ALIAS}.{LANDED_FILES.layer}.{LANDED_FILES.name} WHERE table_name = ?",
                [source.table_name],
            )
        )
    return [file for file in landed if (file.path, file.fingerprint) not in known]


def load_batch(duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]) -> BatchOutcome:
    """Load a batch of landed files: their rows into bronze in one commit, their fates into the book.

    It may be run again after any failure: what was committed is found in the table's log and left out.

    Raises:
        LandingUnavailable: a file cannot be read.
        CommitConflict, CatalogUnavailable, CatalogDenied, UnsafeTable, CommitOutcomeUnknown: see DuckDBSession.append.
    """
    batch = batch_id(source, files)
    now = dt.datetime.now(dt.UTC)
    with tempfile.TemporaryDirectory(prefix="ratify-") as folder, duckdb.session() as session:
        create_stage(session, source)
        outcomes = [_staged(session, landing, source, file, batch, Path(folder)) for file in files]
        outcomes, version = _commit(session, source, _without_doubles(outcomes), now, Path(folder))
        _record(session, source, outcomes, now, Path(folder))
    return BatchOutcome(batch, tuple(outcomes), version)


def create_stage(session: DuckDBSession, source: Source) -> None:
    """Make the empty local table that files of a source are parsed into."""
    columns = ", ".join(f'"{name}" VARCHAR' for name in source.header)
    session.con.execute(f"CREATE OR REPLACE TEMP TABLE {STAGE} ({columns}, _source_file VARCHAR, _source_row BIGINT)")


def _staged(
    session: DuckDBSession, landing: LandingZone, source: Source, file: LandedFile, batch: str, folder: Path
) -> FileOutcome:
    fetched = landing.fetch(file.path, folder)
    outcome = FileOutcome(file.path, file.fingerprint, fetched.sha256, fetched.size, batch)
    try:
        return replace(outcome, rows=stage(session.con, source, file.path, fetched.local, STAGE))
    except BadFile as error:
        return replace(outcome, status=Status.QUARANTINED, reason=error.reason)
    finally:
        fetched.local.unlink()


def _without_doubles(outcomes: Sequence[FileOutcome]) -> list[FileOutcome]:
    """Mark the second of two files with the same bytes in one batch."""
    first = dict[str, str]()
    kept = list[FileOutcome]()
    for outcome in outcomes:
        if outcome.status is Status.LOADED and first.setdefault(outcome.sha256, outcome.path) != outcome.path:
            reason = f"the same bytes as {first[outcome.sha256]}"
            kept.append(replace(outcome, status=Status.REPEATED, rows=0, reason=reason))
        else:
            kept.append(outcome)
    return kept


def _commit(
    session: DuckDBSession, source: Source, outcomes: Sequence[FileOutcome], now: dt.datetime, folder: Path
) -> tuple[list[FileOutcome], int | None]:
    """Append the staged rows of the files that are new, however many writers load the same files at the same time.

    All are taken to be new until the table's log says otherwise: to ask it first would cost as much as the commit.
    """
    while fresh := [outcome for outcome in outcomes if outcome.fresh]:
        names = ", ".join(literal(outcome.path) for outcome in fresh)
        select = (
            f"SELECT *, TIMESTAMPTZ {literal(now.isoformat())}, {literal(fresh[0].batch_id)} FROM {STAGE} "
            f"WHERE _source_file IN ({names}) ORDER BY _source_file, _source_row"
        )
        staged = session.stage(source.table, select, [load for outcome in fresh for load in outcome.loads], folder)
        try:
            return list(outcomes), session.commit_staged(source.table, staged).version
        except AlreadyLoaded as error:
            logger.info("%s", error)
            outcomes = _settled(session, source, outcomes)
    return list(outcomes), None


def _settled(session: DuckDBSession, source: Source, outcomes: Sequence[FileOutcome]) -> list[FileOutcome]:
    """Settle the fate of files whose bytes or names the table's log knows already."""
    there = session.loaded(source.table, [load for outcome in outcomes if outcome.fresh for load in outcome.loads])
    booked = _booked(session, source)

    def settled(outcome: FileOutcome) -> FileOutcome:
        same_bytes, same_name = (load in there for load in outcome.loads)
        if not outcome.fresh or not (same_bytes or same_name):
            return outcome
        if same_bytes and same_name and outcome.path not in booked:
            return _recovered(session, source, outcome)
        if same_bytes:
            return replace(outcome, status=Status.REPEATED, rows=0, reason="its bytes were loaded before")
        reason = "this name was loaded before with other content; land a correction under a new name"
        return replace(outcome, status=Status.QUARANTINED, rows=0, reason=reason)

    return [settled(outcome) for outcome in outcomes]


def _recovered(session: DuckDBSession, source: Source, outcome: FileOutcome) -> FileOutcome:
    """An earlier attempt committed the file's rows and died before it entered them in the book."""
    table = f"{ALIAS}.{source.table_name}"
    found = session.rows(f"SELECT any_value(_batch_id), count(*) FROM {table} WHERE _source_file = ?", [outcome.path])
    batch, rows = found[0]
    return replace(outcome, batch_id=batch or outcome.batch_id, rows=rows, recovered=True)


def _booked(session: DuckDBSession, source: Source) -> set[str]:
    book = f"{ALIAS}.{LANDED_FILES.layer}.{LANDED_FILES.name}"
    loaded = session.rows(f"SELECT path FROM {book} WHERE table_name = ? AND status = 'loaded'", [source.table_name])
    return {path for (path,) in loaded}


def _record(session: DuckDBSession, source: Source, outcomes: Sequence[FileOutcome], now: dt.datetime, folder: Path) -> None:
    """Enter each version of each file in the book, once."""
    table, pending = source.table_name, {_book_load(outcome): outcome for outcome in outcomes}
    while pending:
        session.con.execute(f"CREATE OR REPLACE TEMP TABLE {BOOK_STAGE} (load VARCHAR, {_BOOK_COLUMNS})")
        for load, o in pending.items():
            session.con.execute(
                f"INSERT INTO {BOOK_STAGE} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [load, o.path, o.fingerprint, o.sha256, o.size, table, o.status, o.rows, o.reason, o.batch_id, now],
            )
        try:
            staged = session.stage(LANDED_FILES, f"SELECT * EXCLUDE (load) FROM {BOOK_STAGE}", list(pending), folder)
            session.commit_staged(LANDED_FILES, staged)
        except AlreadyLoaded as error:
            pending = {load: outcome for load, outcome in pending.items() if load not in error.loads}
        else:
            return


_BOOK_COLUMNS = (
    "path VARCHAR, fingerprint VARCHAR, sha256 VARCHAR, bytes BIGINT, table_name VARCHAR, status VARCHAR, rows BIGINT, "
    "reason VARCHAR, batch_id VARCHAR, recorded_at TIMESTAMPTZ"
)


def _book_load(outcome: FileOutcome) -> str:
    return f"book:{outcome.path}@{outcome.fingerprint}"
