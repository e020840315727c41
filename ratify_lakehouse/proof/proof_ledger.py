"""The ledger of the proof: what each step wrote. Steps know of each other by it alone, so each may run in its own process.

A run begins with a baseline: what setup has loaded, or what verify has rolled back to.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import uuid4

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDBSession
from ratify_lakehouse.errors import NotConfigured
from ratify_lakehouse.proof.row_digest import Block, Digest
from ratify_lakehouse.sql.duckdb_sql import rows_of

STEPS = TableDeclaration(
    layer="ops",
    name="cross_engine_steps",
    columns=(
        Column("run", "string", "What has begun with the same baseline"),
        Column("step", "string"),
        Column("engine", "string", "Who committed"),
        Column("table_name", "string", "In the schema tpch"),
        Column("operation", "string"),
        Column("version", "bigint", "The table's version with this commit"),
        Column("first_key", "bigint", "Rows from this key of the first column; NULL: all rows"),
        Column("last_key", "bigint", "Up to this one"),
        Column("row_count", "bigint", "Of those rows, at this version"),
        Column("digest", "decimal(38,0)", "Of those rows, by what was to be written"),
        Column("scale_factor", "double", "Of the baseline"),
        Column("recorded_at", "timestamp"),
    ),
    comment="What each step of the cross-engine proof wrote",
    writer=Engine.DUCKDB,
    operations=frozenset({"WRITE"}),
)


@dataclass(frozen=True)
class ProofEntry:
    """What a commit left in a block of a table, or in the whole of it."""

    step: str
    engine: Engine
    table: str
    operation: str
    version: int
    block: Block | None
    digest: Digest


@dataclass(frozen=True)
class Run:
    """A baseline and what was written on top of it, in the order of the versions of each table.

    Attributes:
        scale_factor: That of TPC-H's generator; None if it is not known.
    """

    id: str
    scale_factor: float | None
    entries: tuple[ProofEntry, ...]

    def last(self) -> list[ProofEntry]:
        """Return the entries that describe what is in the tables now."""
        return list({(entry.table, entry.block): entry for entry in self.entries}.values())

    def baseline(self) -> list[ProofEntry]:
        """Return the entries that the run started with."""
        return [entry for entry in self.entries if entry.operation in _BASELINE]


LOAD, RESTORE = "LOAD", "RESTORE"
_BASELINE = (LOAD, RESTORE)


def begin(session: DuckDBSession, entries: Sequence[ProofEntry], scale_factor: float | None) -> Run:
    """Enter a new run with its baseline."""
    run = Run(uuid4().hex[:12], scale_factor, tuple(entries))
    record(session, run, entries)
    return run


def record(session: DuckDBSession, run: Run, entries: Sequence[ProofEntry]) -> None:
    """Enter what a step of a run has written.

    Raises:
        As DuckDBSession.append.
    """
    now = dt.datetime.now(dt.UTC).isoformat()
    rows = [
        {
            "run": run.id,
            "step": entry.step,
            "engine": entry.engine.value,
            "table_name": entry.table,
            "operation": entry.operation,
            "version": entry.version,
            "first_key": entry.block and entry.block.first,
            "last_key": entry.block and entry.block.last,
            "row_count": entry.digest.rows,
            # JSON's numbers would lose digits.
            "digest": str(entry.digest.sum),
            "scale_factor": run.scale_factor,
            "recorded_at": now,
        }
        for entry in entries
    ]
    session.append(STEPS, rows_of(STEPS.column_names, rows), [f"{run.id}:{entries[0].step}:{uuid4().hex}"])


def current(session: DuckDBSession) -> Run:
    """Return the run that began last.

    Raises:
        NotConfigured: none has begun.
    """
    session.attach()
    rows = session.rows(
        "SELECT run, scale_factor, step, engine, table_name, operation, version, first_key, last_key, row_count, digest "
        f"FROM {ALIAS}.{STEPS.layer}.{STEPS.name} "
        f"WHERE run = (SELECT arg_max(run, recorded_at) FROM {ALIAS}.{STEPS.layer}.{STEPS.name} WHERE operation IN (?, ?)) "
        "ORDER BY table_name, version, recorded_at",
        _BASELINE,
    )
    if not rows:
        raise NotConfigured("No tables of the proof were set up: run it without --no-setup.")
    return Run(rows[0][0], rows[0][1], tuple(_entry(*row[2:]) for row in rows))


def _entry(
    step: str,
    engine: str,
    table: str,
    operation: str,
    version: int,
    first: int | None,
    last: int | None,
    *digest: int | Decimal,
) -> ProofEntry:
    block = None if first is None or last is None else Block(first, last)
    count, total = map(int, digest)
    return ProofEntry(step, Engine(engine), table, operation, version, block, Digest(count, total))
