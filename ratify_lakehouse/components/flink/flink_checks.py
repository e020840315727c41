"""Checks of a table that Flink writes: one row for each key, and the same rows as another table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from ratify_lakehouse.sql.table_query import TableName

KEYS_UNIQUE = "one_row_for_each_key"
_SHOWN = 5


@dataclass(frozen=True)
class SameRows:
    """A table that has the same rows, once they are settled.

    Attributes:
        table: The other table, which has the same keys and columns.
        time: Column with a row's time, in both.
        settled: How long after its time a row may change in the other table, as an interval of DuckDB.
    """

    table: TableName
    time: str
    settled: str

    @property
    def check_name(self) -> str:
        """The name of the check."""
        return f"equals_{self.table.schema}_{self.table.table}"


def unique_keys_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check that the table has one row for each key."""
    key = asset_key(declaration)
    text = "The table has one row for each key: no row was written twice."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_keys",
        specs=[check_spec(KEYS_UNIQUE, asset=key, blocking=True, description=text)],
    )
    @in_one_line(declaration.table_name, lambda: bool(declaration.personal))
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with duckdb.session() as session:
            finding = unique_keys(session, attached(declaration.table_name), declaration)
        yield check_result(key, KEYS_UNIQUE, finding)

    return check


def same_rows_check(declaration: TableDeclaration, same: SameRows) -> dg.AssetChecksDefinition:
    """Return the check that the table has the settled rows of another one."""
    key = asset_key(declaration)
    text = f"Each row is as {same.table} has it, and none is missing, up to the times that are settled in both."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_same_rows",
        specs=[
            check_spec(
                same.check_name,
                asset=key,
                additional_deps=[dg.AssetKey(same.table.key_path(catalog_name()))],
                description=text,
            )
        ],
    )
    @in_one_line(declaration.table_name, lambda: bool(declaration.personal))
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        try:
            duckdb.catalog.version(same.table.full_name(catalog_name()))
        except TableMissing as error:
            yield check_result(key, same.check_name, Finding(True, str(error), {"rows compared": 0}))
            return
        with duckdb.session() as session:
            tables = attached(declaration.table_name), attached(str(same.table))
            finding = same_rows(session, *tables, declaration, same)
        yield check_result(key, same.check_name, finding)

    return check


def unique_keys(session: DuckDBSession, table: str, declaration: TableDeclaration) -> Finding:
    """Check that a table has one row for each key; `table` is DuckDB's name of it."""
    names = ", ".join(map(identifier, declaration.keys))
    groups = f"FROM (SELECT {names}, count(*) AS n FROM {table} GROUP BY {names})"
    ((rows, found, doubled),) = session.rows(f"SELECT coalesce(sum(n), 0), count(*), count(*) FILTER (WHERE n > 1) {groups}")
    keys = _shown(declaration, declaration.keys)
    examples = session.rows(f"SELECT {keys} {groups} WHERE n > 1 ORDER BY ALL LIMIT {_SHOWN}") if doubled else []
    shown = "; ".join(", ".join(map(str, row)) for row in examples)
    return Finding(
        not doubled,
        f"{doubled:,} keys have more than one row, such as {shown}." if doubled else f"Each of {found:,} keys has one row.",
        {"rows": int(rows), "keys": int(found), "keys with several rows": int(doubled)},
    )


def same_rows(session: DuckDBSession, table: str, other: str, declaration: TableDeclaration, same: SameRows) -> Finding:
    """Check that two tables have the same rows, up to the last time of the one, and what is settled in the other.

    Args:
        session: Of DuckDB.
        table: Its name of the table.
        other: Of the other one.
        declaration: With the columns of both.
        same: How they are compared.
    """
    time, names = identifier(same.time), ", ".join(map(identifier, declaration.column_names))
    ((last, settled),) = session.rows(
        f"SELECT (SELECT max({time}) FROM {table}), "
        f"(SELECT max({time}) - CAST({literal(same.settled)} AS INTERVAL) FROM {other})"
    )
    if last is None or settled is None:
        return Finding(True, "No time is settled in both tables yet.", {"rows compared": 0})
    until = f"WHERE {time} <= least({', '.join(f'CAST({literal(str(each))} AS TIMESTAMPTZ)' for each in (last, settled))})"
    ours, theirs = (f"(SELECT {names} FROM {each} {until})" for each in (table, other))
    ((rows, more, missing),) = session.rows(
        f"SELECT (SELECT count(*) FROM {ours}), (SELECT count(*) FROM ({ours} EXCEPT ALL {theirs})), "
        f"(SELECT count(*) FROM ({theirs} EXCEPT ALL {ours}))"
    )
    numbers = {
        "rows compared": int(rows),
        "rows that differ": int(more),
        "rows of the other table that differ": int(missing),
    }
    if not (more or missing):
        return Finding(True, f"All {rows:,} rows that are settled are as {same.table} has them.", numbers)
    (example,) = session.rows(
        f"SELECT {_shown(declaration, declaration.column_names)} "
        f"FROM (({ours} EXCEPT ALL {theirs}) UNION ALL ({theirs} EXCEPT ALL {ours})) ORDER BY ALL LIMIT 1"
    )
    shown = ", ".join(map(str, example))
    return Finding(False, f"{more:,} rows are not in {same.table}, {missing:,} are missing, such as {shown}.", numbers)


def _shown(declaration: TableDeclaration, columns: Sequence[str]) -> str:
    """The columns as they are shown: without personal values."""
    return ", ".join("'…'" if name in declaration.personal else identifier(name) for name in columns)
