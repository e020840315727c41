"""The ledger of landed files: its table, and what an entry says. `ledger_writes` writes it, `ledger_queries` reads it."""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from ingest.file_source import APPEND, LOADS_RETAINED
from ingest.ledger import file_load_ids
from resources.declarations import Column, Engine, TableDeclaration

LANDED_FILES = TableDeclaration(
    layer="ops",
    name="landed_files",
    columns=(
        Column("path", "string", "Path relative to the landing zone"),
        Column("fingerprint", "string", "Identifies this version of the file, from the listing"),
        Column("sha256", "string", "SHA-256 of its bytes"),
        Column("bytes", "bigint"),
        Column("table_name", "string", "Bronze table that its rows are for, as schema.table"),
        Column(
            "status",
            "string",
            "loaded, repeated (its bytes were loaded before), quarantined or withdrawn (its rows were removed)",
        ),
        Column("rows", "bigint", "Rows that it added to bronze"),
        Column("reason", "string", "Why it was not loaded"),
        Column("batch_id", "string"),
        Column("recorded_at", "timestamp", "When its batch was read (UTC)"),
        Column("rescued", "bigint", "Of its rows, those with something in _rescued_data"),
        Column("version", "bigint", "Version of the bronze table that added its rows"),
        Column("attempts", "int", "How often the commit was tried"),
        Column("seconds", "double", "From the first look at the file to its commit"),
        Column("landed_at", "timestamp", "When the file last changed, by the store's clock (UTC)"),
    ),
    comment="The ledger of landed files: what became of each version of each file",
    writer=Engine.DUCKDB,
    operations=APPEND,
    properties=LOADS_RETAINED,
)


class Status(StrEnum):
    """What became of a landed file. WITHDRAWN: its rows were loaded, and removed later."""

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
        """The load id of its bytes."""
        return file_load_ids.content_load(self.sha256)

    @property
    def path_load(self) -> str:
        """The load id of its name."""
        return file_load_ids.path_load(self.path)


@dataclass(frozen=True)
class FileOutcome(_Identified):
    """What became of one landed file.

    Attributes:
        rows: Rows that it added to bronze.
        rescued: Those of them that have something in `_rescued_data`.
        recovered: An earlier attempt committed its rows and died before it wrote the ledger entry.
        replaced: Rows of earlier content under the same name that its rows replaced.
        version: The table's version that added its rows; None where none did, or where it was an earlier attempt's.
        attempts: How often the commit was tried.
        seconds: From the first look at the file to its commit.
        landed_at: When the file last changed, where the store reports it.
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
        """The load id of its ledger entry."""
        return file_load_ids.entry_load(self.path, self.fingerprint)


@dataclass(frozen=True)
class LedgerEntry(_Identified):
    """A version of a file whose rows are in bronze, according to the ledger."""

    path: str
    fingerprint: str
    sha256: str
    size: int
    rows: int

    def withdrawn(self, version: int | None, reason: str) -> FileOutcome:
        """Return the outcome that version `version` of the bronze table removed its rows."""
        return FileOutcome(
            self.path,
            self.fingerprint,
            self.sha256,
            self.size,
            "",
            Status.WITHDRAWN,
            self.rows,
            reason=reason,
            version=version,
        )
