"""The ledger of landed files: what became of each landed file, a row for each of its versions."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ingest.file_source import APPEND, KEPT, Source
from resources.declarations import Column, Engine, TableDeclaration
from resources.duckdb.duckdb_engine import ALIAS, DuckDBSession
from resources.errors import AlreadyLoaded
from resources.landing.landing_zone import LandedFile
from resources.sql.duckdb_sql import rows_of

LANDED_FILES = TableDeclaration(
    layer="ops",
    name="landed_files",
    columns=(
        Column("path", "string", "Path relative to the landing zone"),
        Column("fingerprint", "string", "What the listing said of this version of the file"),
        Column("sha256", "string", "SHA-256 of its bytes"),
        Column("bytes", "bigint"),
        Column("table_name", "string", "Bronze table that its rows are for, as schema.table"),
        Column(
            "status",
            "string",
            "loaded, repeated (its bytes were loaded before), quarantined or withdrawn (taken out)",
        ),
        Column("rows", "bigint", "Rows that it brought into bronze"),
        Column("reason", "string", "Why it was not loaded"),
        Column("batch_id", "string"),
        Column("recorded_at", "timestamp", "When its batch was read (UTC)"),
        Column("rescued", "bigint", "Of its rows, those with something in _rescued_data"),
        Column("version", "bigint", "Version of the bronze table that brought its rows"),
        Column("attempts", "int", "How often the commit was tried"),
        Column("seconds", "double", "From the first look at the file to its commit"),
        Column("landed_at", "timestamp", "When the store last saw it change (UTC)"),
    ),
    comment="The ledger of landed files: what became of each landed file",
    writer=Engine.DUCKDB,
    operations=APPEND,
    properties=KEPT,
)

LEDGER = f"{ALIAS}.{LANDED_FILES.layer}.{LANDED_FILES.name}"
"""The table, as DuckDB names it."""


class Status(StrEnum):
    """What became of a landed file. WITHDRAWN: its rows, which had been loaded, were taken out again."""

    LOADED = "loaded"
    REPEATED = "repeated"
    QUARANTINED = "quarantined"
    WITHDRAWN = "withdrawn"


class _Identified:
    """A version of a file, by its name and its bytes."""

    path: str
    sha256: str

    @property
    def content_load(self) -> str:
        """The Delta app id that keeps its bytes from being loaded again."""
        return f"content:{self.sha256}"

    @property
    def path_load(self) -> str:
        """The Delta app id that tells that a file of its name was loaded."""
        return f"path:{self.path}"


@dataclass(frozen=True)
class FileOutcome(_Identified):
    """What became of one landed file.

    Attributes:
        rows: Those that it brought into bronze.
        rescued: Those of them that have something in `_rescued_data`.
        recovered: An earlier attempt, which died before it could say so, had committed them.
        replaced: Rows that went for them, of earlier content under the same name.
        version: The table's version that brought them; None where none did, or where it was an earlier attempt's.
        attempts: How often the commit was tried.
        seconds: From the first look at the file to its commit.
        landed_at: When the store last saw it change, where it says.
    """

    path: str
    fingerprint: str
    sha256: str
    size: int
    batch_id: str
    status: Status = Status.LOADED
    rows: int = 0
    rescued: int = 0
    reason: str = ""
    recovered: bool = False
    replaced: int = 0
    version: int | None = None
    attempts: int = 0
    seconds: float = 0.0
    landed_at: dt.datetime | None = None

    @property
    def fresh(self) -> bool:
        """Whether its rows are still to be committed."""
        return self.status is Status.LOADED and not self.recovered and self.version is None

    @property
    def entry_load(self) -> str:
        """The Delta app id, in the ledger, of this version of the file."""
        return f"ledger:{self.path}@{self.fingerprint}"


@dataclass(frozen=True)
class LedgerEntry(_Identified):
    """A version of a file whose rows are in bronze, by the ledger."""

    path: str
    fingerprint: str
    sha256: str
    size: int
    rows: int


def loaded_entries(
    session: DuckDBSession, table_name: str, paths: Iterable[str], contents: Iterable[str]
) -> list[LedgerEntry]:
    """Return what the ledger says is in a bronze table, by names of files or by the SHA-256 of their bytes."""
    session.attach()
    rows = session.rows(
        "SELECT path, fingerprint, sha256, any_value(bytes), sum(if(status = 'loaded', rows, -rows))::BIGINT "
        f"FROM {LEDGER} WHERE table_name = ? AND status IN ('loaded', 'withdrawn') "
        "AND (path IN (SELECT unnest(?::VARCHAR[])) OR sha256 IN (SELECT unnest(?::VARCHAR[]))) "
        "GROUP BY ALL HAVING count_if(status = 'loaded') > count_if(status = 'withdrawn')",
        [table_name, list(paths), list(contents)],
    )
    return [LedgerEntry(*row) for row in rows]


@dataclass(frozen=True)
class EntryState:
    """What became of one version of a file."""

    status: Status
    rows: int
    reason: str


@dataclass(frozen=True)
class Total:
    """Lines of one status: how many, their rows and their bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0


def known(session: DuckDBSession, source: Source, files: Sequence[LandedFile]) -> dict[LandedFile, EntryState]:
    """Return the last entries of those files that the ledger has in just their present version, and not as withdrawn."""
    rows = session.rows(
        f"SELECT path, fingerprint, arg_max((status, rows, coalesce(reason, '')), recorded_at) FROM {LEDGER} "
        "WHERE table_name = ? AND path IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL",
        [source.table_name, [file.path for file in files]],
    )
    last = {(path, fingerprint): EntryState(Status(entry[0]), *entry[1:]) for path, fingerprint, entry in rows}
    found = ((file, last.get((file.path, file.fingerprint))) for file in files)
    return {file: entry for file, entry in found if entry and entry.status is not Status.WITHDRAWN}


def totals(session: DuckDBSession) -> dict[Status, Total]:
    """Return the sums over the whole ledger, for each status."""
    rows = session.rows(
        f"SELECT status, count(*), sum(rows)::BIGINT, coalesce(sum(bytes), 0)::BIGINT FROM {LEDGER} GROUP BY status"
    )
    return dict.fromkeys(Status, Total()) | {Status(status): Total(*numbers) for status, *numbers in rows}


def record(session: DuckDBSession, table_name: str, outcomes: Sequence[FileOutcome], now: dt.datetime) -> None:
    """Enter each version of each file in the ledger, once.

    Raises:
        As DuckDBSession.append.
    """
    pending = {outcome.entry_load: _entry(table_name, outcome, now) for outcome in outcomes}
    while pending:
        try:
            session.append(LANDED_FILES, _rows(pending.values()), list(pending))
        except AlreadyLoaded as error:
            pending = {load: entry for load, entry in pending.items() if load not in error.loads}
        else:
            return


def withdraw(
    session: DuckDBSession, table_name: str, entries: Sequence[LedgerEntry], version: int | None, reason: str
) -> None:
    """Enter in the ledger that rows of files were taken out of a bronze table again, by its version `version`.

    Raises:
        As DuckDBSession.append.
    """
    now = dt.datetime.now(dt.UTC)
    gone = {f"withdrawn:{table_name}@{version}:{entry.path}@{entry.fingerprint}": entry for entry in entries}
    while gone:
        outcomes = [
            FileOutcome(
                entry.path, entry.fingerprint, entry.sha256, entry.size, "", Status.WITHDRAWN, entry.rows, reason=reason
            )
            for entry in gone.values()
        ]
        rows = _rows(_entry(table_name, replace(outcome, version=version), now) for outcome in outcomes)
        try:
            session.append(LANDED_FILES, rows, list(gone), withdrawn=[outcome.entry_load for outcome in outcomes])
        except AlreadyLoaded as error:
            gone = {load: entry for load, entry in gone.items() if load not in error.loads}
        else:
            return


def withdraw_loads(session: DuckDBSession, table_name: str, loads: Iterable[str], version: int | None) -> list[LedgerEntry]:
    """Enter in the ledger the files whose loads a repair of a bronze table has taken out; return their lines."""
    contents = [load.removeprefix("content:") for load in loads if load.startswith("content:")]
    entries = loaded_entries(session, table_name, [], contents) if contents else []
    withdraw(session, table_name, entries, version, "a file of the table was lost; load it again")
    return entries


def _rows(entries: Iterable[Mapping[str, object]]) -> str:
    """A query that gives ledger entries."""
    return rows_of(LANDED_FILES.column_names, entries)


def _entry(table_name: str, outcome: FileOutcome, now: dt.datetime) -> dict[str, object]:
    return {
        "path": outcome.path,
        "fingerprint": outcome.fingerprint,
        "sha256": outcome.sha256,
        "bytes": outcome.size,
        "table_name": table_name,
        "status": outcome.status.value,
        "rows": outcome.rows,
        "rescued": outcome.rescued,
        "reason": outcome.reason,
        "batch_id": outcome.batch_id,
        "version": outcome.version,
        "attempts": outcome.attempts,
        "seconds": outcome.seconds,
        "landed_at": outcome.landed_at and outcome.landed_at.isoformat(),
        "recorded_at": now.isoformat(),
    }
