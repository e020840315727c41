"""The ledger of landed files: what became of each file. This package alone reads and writes `ops.landed_files`.

An entry is known by its bronze table (by its id: after a table is dropped and created again, all of its files are waiting),
the file's path and the SHA-256 of its bytes. Its state is one of `Status`. The rules:

- Order is that of the bronze table's versions. No rule reads a clock or a file's time. The files of a batch landed in the
  order in which the batch has them, whatever became of each: all of them count as of the first version that the batch
  committed (`batch_version`), and among them the position decides (`batch_position`).
- The commit that brings rows records whose they are (`committed_files`), so rows and record are ratified together. Entries
  LOADED and WITHDRAWN are copied from these commits, in the order of versions, each version once and none left out; so a
  writer that dies after its commit loses nothing: the next one copies the entry. Until then the commits are asked, too.
- A content, once LOADED, is *held* by its path until it is WITHDRAWN: a replacement or a repair has removed its rows. A
  table holds each content once.
- REPEATED holds only while another path (`repeated_of`), or the same one, holds the content. Then the file is waiting again.
- REFUSED holds while the source's declaration is the same. If the reason was that the name had other content, it also holds
  only while the name has that content (`conflicts_with`). Then the file is waiting again.
- Under the policy `replace`, a file that holds another content too is waiting: its rows are to be replaced.
- REWRITTEN says of bytes, not of a version of a file: an erasure has written them in place of a content
  (`conflicts_with`), of which they lack rows. Wherever they are read, they count as that content (`rewritten_contents`), so
  that each other entry, and each load id, has the SHA-256 of what landed first. It is written before the file is, and holds
  for ever.
- Every other version of a file is waiting.

`file_states` has these rules as pure functions, `ledger_index` finds entries, and `ledger_access` brings both together.
"""

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.ingest.file_source import APPEND, LOADS_RETAINED

LANDED_FILES = TableDeclaration(
    layer="ops",
    name="landed_files",
    columns=(
        Column("path", "string", "Path relative to the landing zone"),
        Column(
            "fingerprint", "string", "Identifies this version of the file, from the listing; of rewritten bytes: the old one"
        ),
        Column("sha256", "string", "SHA-256 of its bytes; of bytes that an erasure has rewritten: of those that landed"),
        Column("bytes", "bigint"),
        Column("table_name", "string", "Bronze table that its rows are for, as schema.table"),
        Column("table_id", "string", "Id of that table in the catalog"),
        Column(
            "status",
            "string",
            "loaded, repeated (its bytes are in the table already), refused, withdrawn (its rows were removed) or rewritten "
            "(its bytes are by an erasure, and count as others)",
        ),
        Column("rows", "bigint", "Rows that it added to bronze; of rewritten bytes: rows that they lack"),
        Column("reason", "string", "Why it was not loaded, or why its rows were removed"),
        Column("repeated_of", "string", "Of a repeated file: path of the file whose rows its bytes are"),
        Column(
            "conflicts_with",
            "string",
            "SHA-256 of another content: of a file refused for its name that which the name has, of rewritten bytes what "
            "they count as",
        ),
        Column("declaration", "string", "Of a refused file: digest of the source's declaration"),
        Column("batch_id", "string"),
        Column("recorded_at", "timestamp", "When its version was committed, or else when the entry was written (UTC)"),
        Column("rescued", "bigint", "Of its rows, those with something in _rescued_data"),
        Column("version", "bigint", "Version of the bronze table that added or removed its rows, or else the latest one"),
        Column("seconds", "double", "From the first look at the file to its commit request"),
        Column("landed_at", "timestamp", "When the file last changed, by the store's clock (UTC)"),
        Column(
            "batch_version",
            "bigint",
            "Version of the table as of which its batch landed: the first that the batch committed, or else the latest",
        ),
        Column("batch_position", "int", "Place of the file in its batch, from 0; NULL of a batch that committed nothing"),
    ),
    comment="The ledger of landed files: what became of each version of each file",
    writer=Engine.DUCKDB,
    operations=APPEND,
    properties=LOADS_RETAINED,
)


_LAST_POSITION = 2**31 - 1


def landing_place(columns: Collection[str]) -> tuple[str, str]:
    """Return SQL, of Spark and DuckDB alike, of an entry's place in the order of landings.

    Entries of one place landed in the order in which the ledger has them.

    Args:
        columns: Those of the ledger: one that no load has written since this order was introduced lacks the batch's.
    """
    version, position = (name if name in columns else "NULL" for name in ("batch_version", "batch_position"))
    # Batches that committed nothing landed after the one that committed the version.
    return f"coalesce({version}, version)", f"coalesce({position}, {_LAST_POSITION})"


class Status(StrEnum):
    """What became of a landed file. WITHDRAWN: its rows were loaded, and removed later. REWRITTEN: of bytes that an erasure
    makes of a file, and which count as its bytes."""

    LOADED = "loaded"
    REPEATED = "repeated"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class FileOutcome:
    """What became of one landed file.

    Attributes:
        rows: Rows that it added to bronze.
        rescued: Those of them that have something in `_rescued_data`.
        recovered: An earlier attempt committed its rows and died before the ledger had the entry.
        replaced: Rows of earlier content under the same name that were removed for it.
        version: The table's version that added its rows; None where none did, or where it was an earlier attempt's.
        attempts: How often the commit was tried.
        seconds: From the first look at the file to its commit.
        landed_at: When the file last changed, where the store reports it.
        repeated_of, conflicts_with, batch_version, batch_position: See the ledger's columns.
        held_since: Of a repeated file: version of the table that added the rows which its bytes are.
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
    repeated_of: str = ""
    conflicts_with: str = ""
    batch_version: int | None = None
    batch_position: int | None = None
    held_since: int = -1


@dataclass(frozen=True)
class LedgerEntry:
    """A row of the ledger: what became of one version of a file. The attributes are the ledger's columns."""

    path: str
    fingerprint: str
    sha256: str
    size: int
    status: Status
    rows: int
    reason: str
    version: int
    batch_id: str
    conflicts_with: str
    declaration: str
