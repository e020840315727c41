"""Tables as their first pass leaves them, with its record: by our own commits, where a later pass is the subject."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ratify_lakehouse.components.feeds.audit_trail import AuditedTable
from ratify_lakehouse.components.sql_table import ValidatedQuery, resolve
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.changed_rows_by_duckdb import ChangedRowsByDuckDB
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.strategies.history_rows import HistoryPass
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.table_passes import PartitionedRows, PartitionedRowsByDuckDB
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion, QuarantineVersion
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse


@contextmanager
def one_pass(lake: Lakehouse | Sparkless, table: ValidatedQuery) -> Iterator[ChangedRows | ChangedRowsByDuckDB]:
    """A pass of the strategy `incremental` by the table's engine, which has not begun to compute."""
    if table.declaration.writer is Engine.SPARK:
        yield ChangedRows(lake.spark, table)
        return
    with lake.duckdb.session() as session:
        yield ChangedRowsByDuckDB(session, lake.spark, table)


def begin(lake: Lakehouse | Sparkless, table: ValidatedQuery, rows: str = "", quarantined: str = "") -> None:
    """Make a table of the strategy `incremental`.

    Args:
        lake: The lakehouse.
        table: The table.
        rows: A query of DuckDB for its rows; by default they are those of its query, of which both engines make the same.
        quarantined: Likewise for the rows of its quarantine, none by default.
    """
    with one_pass(lake, table) as first:
        _begin(lake, table, first, rows, quarantined)


def begin_declared(lake: Lakehouse | Sparkless, table: SqlTable, rows: str = "", **recorded: Any) -> None:
    """As `begin`, of a table that a project declares; of the strategy `partition` all partitions were computed.

    `recorded`: fields of the record that are others then.
    """
    partitions = table.partitioned
    if not partitions:
        begin(lake, table.table, rows)
        return
    recorded = {"last_partition": partitions.keys[-1], **recorded}
    if table.engine == "spark":
        _begin(lake, table.table, PartitionedRows(lake.spark, table.table).of(partitions, None), rows, **recorded)
        return
    with lake.duckdb.session() as session:
        first = PartitionedRowsByDuckDB(session, lake.spark, table.table).of(partitions, None)
        _begin(lake, table.table, first, rows, **recorded)


def begin_history(lake: Lakehouse, table: HistoryQuery, rows: str) -> None:
    """As `begin`, of a table of the strategy `scd2`, with these rows."""
    _begin(lake, table, HistoryPass(lake.spark, table), rows)


def _begin(
    lake: Lakehouse | Sparkless,
    table: ValidatedQuery,
    first: ChangedRows | ChangedRowsByDuckDB | HistoryPass,
    rows: str,
    quarantined: str = "",
    **recorded: Any,
) -> None:
    resolved = resolve(first, table)
    record = replace(first.record(resolved.declaration), after=0, **recorded)
    if resolved.quarantine:
        assert isinstance(lake, Lakehouse)
        lake.create(resolved.quarantine, quarantined)
        table_id = lake.catalog.table(lake.full(resolved.quarantine)).table_id or ""
        record = replace(record, quarantine=QuarantineVersion(table_id, lake.version(resolved.quarantine), False))
    lake.create(resolved.declaration)
    rows = rows or values_of(lake, table.query.text, len(resolved.declaration.columns))
    lake.insert(resolved.declaration, rows, userMetadata=record.to_json())


def values_of(lake: Lakehouse | Sparkless, query: str, columns: int) -> str:
    """Return the rows of a query as a query of DuckDB that reads no table."""
    found = [tuple(row.values()) for row in lake.quick(query)]
    listed = (", ".join("NULL" if value is None else literal(str(value)) for value in row) for row in found)
    return f"VALUES {', '.join(f'({row})' for row in listed)}" if found else no_rows(columns)


def no_rows(columns: int) -> str:
    """Return a query of DuckDB without rows."""
    return f"SELECT {', '.join(['NULL'] * columns)} WHERE false"


def planned(lake: Lakehouse | Sparkless, table: ValidatedQuery) -> PassPlan:
    """Return what the next pass of a table of the strategy `incremental` would do: nothing is computed."""
    with one_pass(lake, table) as one:
        return one.plan(resolve(one, table).declaration)


def begin_trail(lake: Lakehouse, audited: AuditedTable, rows: str = "") -> None:
    """Make an audit trail that has the changes up to now, if not their rows.

    Args:
        lake: The lakehouse.
        audited: The table, and its trail.
        rows: A query of DuckDB for the rows of the trail; by default it has none.
    """
    lake.create(audited.trail)
    record_changes(lake, audited, rows)


def record_changes(lake: Lakehouse, audited: AuditedTable, rows: str = "") -> None:
    """Commit to an audit trail what a pass does: see `begin_trail`."""
    full_name = f"ratify.{audited.table}"
    until = InputVersion(lake.catalog.table(full_name).table_id or "", lake.catalog.version(full_name))
    after, went_on = lake.version(audited.trail), audited.from_version
    record = ComputedInputs(repr(audited.keys), after, {full_name: until}, uuid4().hex, from_version=went_on)
    lake.insert(audited.trail, rows or no_rows(len(audited.trail.columns)), userMetadata=record.to_json())
