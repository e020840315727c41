"""A table that gets the rows of each period once (strategy `append_by_period`), by DuckDB or Spark.

A pass computes the rows of the query whose period the table does not have, and appends them. DuckDB commits one period at a
time, with a load id, of which the catalog accepts one. Spark inserts all of them by one MERGE on the period, which Delta
does not let pass another one. Whatever becomes of the inputs, a period that the table has stays as it is.
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.query_engines import (
    DuckDBQueries,
    DuckDBRows,
    RowsToWrite,
    SparkQueries,
    SparkRows,
    ValidatedRows,
)
from ratify_lakehouse.components.sql_table import ValidatedQuery, materialize
from ratify_lakehouse.components.strategies.computed_rows import failing_stored
from ratify_lakehouse.components.strategies.pass_results import materialize_passes
from ratify_lakehouse.components.strategies.rows_of_keys import stored_failures_by_duckdb
from ratify_lakehouse.components.strategies.table_partitions import named
from ratify_lakehouse.components.table_asset import materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.group_commit import Ratified
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.interpreted_queries import FEW_ROWS
from ratify_lakehouse.engines.spark.merge_statements import insert_missing_sql
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import AlreadyLoaded, CommitConflict, QueryMismatch, TableMissing, UnsafeDeclaration
from ratify_lakehouse.sql import duckdb_sql
from ratify_lakehouse.sql.spark_sql import at_version, identifier
from ratify_lakehouse.wording import counted

_PERIOD_TYPES = ("date", "timestamp", "string", "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class PeriodQuery(ValidatedQuery):
    """A table that gets the rows of each period of a query once.

    Attributes:
        period: The column whose value names the period of a row.

    Raises:
        UnsafeDeclaration: it is not a column of the table.
        As ValidatedQuery.
    """

    period: str

    @property
    def code_version(self) -> str:
        """See `ValidatedQuery`."""
        return f"{super().code_version}-{self.period}"

    def stored(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> TableDeclaration:
        """See `ValidatedQuery`.

        Raises:
            QueryMismatch: the type of the period is one whose values have no exact text.
        """
        found = super().stored(types, lineage)
        if (type_ := found.column_types[self.period]) not in _PERIOD_TYPES:
            raise QueryMismatch(
                f"{found.table_name}, column {self.period}: a period is a date, a timestamp, a text or an integer, and "
                f"it is a {type_}: write CAST(… AS …) AS {self.period} in the query."
            )
        return found

    def _check_columns(self, found: Sequence[str] | Mapping[str, str]) -> None:
        # Before the keys, one of which it is.
        if self.period not in found or self.period in self.intermediate:
            raise UnsafeDeclaration(
                f"{self.period!r} is not a column of the table, whose query returns {', '.join(found)}.",
                *("append_by_period", "period"),
            )
        super()._check_columns(found)


def materialize_periods(
    spark: Spark, session: DuckDBSession | None, table: PeriodQuery
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Append the rows of the periods that a table does not have.

    Args:
        spark: The session of Spark, which creates the table.
        session: Of DuckDB, for a table that it writes.
        table: The table, without a quarantine.

    Raises:
        QueryMismatch: a row has no period; nothing was written.
        As sql_table.materialize.
    """
    if session:
        yield from materialize(_DuckDBPeriods(session, spark, table), table)
    else:
        yield from materialize_passes(spark, table, lambda: _SparkPeriods(spark, table))


def _missing(text: str, stored: str, period: str) -> str:
    """The query for the rows of a query whose period a relation does not have; those without a period are among them."""
    return f"SELECT q.* FROM (\n{text}\n) AS q WHERE NOT EXISTS (SELECT 1 FROM {stored} AS t WHERE t.{period} = q.{period})"


def _check_periods(rows: ValidatedRows, table: str, sql: str, name: str, period: str) -> None:
    (found,) = rows.records(f"SELECT count(*) AS n FROM ({sql}) WHERE {period} IS NULL")
    if found["n"]:
        raise QueryMismatch(
            f"{table}: {name} is NULL in {found['n']} rows, which therefore belong to no period. Nothing was written: "
            "give them a period in the query, leave them out, or drop them by an expectation."
        )


class _DuckDBPeriods(DuckDBQueries):
    """One pass of DuckDB over a table."""

    def __init__(self, session: DuckDBSession, spark: Spark, table: PeriodQuery) -> None:
        super().__init__(session, spark, table.declaration)
        self._period = table.period

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of missing periods."""
        try:
            self.catalog.version(self._spark.full_name(declaration))
        except TableMissing:
            return text
        # Another pass may have created it since the columns of the query were read.
        self._session.attach()
        return _missing(text, _attached(declaration), duckdb_sql.identifier(self._period))

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        with super().validated(text):
            yield _DuckDBPeriodRows(self._session, self._spark, self._before, self._period)


@dataclass(frozen=True)
class _DuckDBPeriodRows(DuckDBRows):
    """The rows of missing periods."""

    period: str

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
        return stored_failures_by_duckdb(self.session, expectations, written)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        (given,) = tables
        declaration, sql = given.declaration, given.sql
        began, period = time.monotonic(), duckdb_sql.identifier(self.period)
        _check_periods(self, declaration.table_name, sql, self.period, period)
        listed = f"SELECT {period} AS period, CAST({period} AS VARCHAR) AS name FROM ({sql}) GROUP BY ALL ORDER BY period"
        names = [row["name"] for row in self.records(listed)]
        created = self.created(declaration)
        taken = {name: made for name in names if (made := self._append(declaration, sql, name))}
        self.session.attach()
        now, appended = self.spark.write_result(declaration, None), list(taken.values())
        added = sum(made.rows for made in appended)
        if lost := self._lost(declaration, [name for name in names if name not in taken]):
            more |= {"periods not taken again": len(lost)}
            dg.get_dagster_logger().warning(
                f"{declaration.table_name}: {counted(len(lost), 'period')} ({named(lost)}) had rows in the table that "
                "were deleted. DuckDB appends a period only once; the engine spark would append the rows that the query "
                "returns now."
            )
        wrote = replace(now, counted={"inserted": added}, earlier=[made.version for made in appended])
        shown = {**more, "strategy": "append_by_period", "periods added": len(appended)}
        yield materialize_by(self.spark, declaration, created, began, wrote, self.session, **shown)

    def _lost(self, declaration: TableDeclaration, names: Sequence[str]) -> list[str]:
        """Those of some periods that have been appended which have no rows in the table any more."""
        if not names:
            return []
        period, listed = duckdb_sql.identifier(self.period), ", ".join(map(duckdb_sql.literal, names))
        text = f"CAST({period} AS VARCHAR)"
        there = self.records(f"SELECT DISTINCT {text} AS name FROM {_attached(declaration)} WHERE {text} IN ({listed})")
        found = {row["name"] for row in there}
        return [name for name in names if name not in found]

    def _append(self, declaration: TableDeclaration, sql: str, name: str) -> Ratified | None:
        """Append the rows of a period, in one commit; None where another pass has."""
        columns = ", ".join(map(duckdb_sql.identifier, declaration.column_names))
        of_period = f"CAST({duckdb_sql.identifier(self.period)} AS VARCHAR) = {duckdb_sql.literal(name)}"
        rows = self.over(f"SELECT {columns} FROM ({sql}) WHERE {of_period}")
        try:
            return self.session.append(declaration, rows, [f"period:{name}"])
        except AlreadyLoaded:
            return None


class _SparkPeriods(SparkQueries):
    """One pass of Spark over a table."""

    def __init__(self, spark: Spark, table: PeriodQuery) -> None:
        super().__init__(spark, table.query, table.declaration)
        self._period, self._after = table.period, 0

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of missing periods."""
        try:
            self._after = self.catalog.version(self._spark.full_name(declaration))
        except TableMissing:
            return text
        stored = at_version(self._spark.sql_name(declaration), self._after)
        return _missing(text, f"(SELECT * FROM {stored})", identifier(self._period))

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        with self.few_rows(FEW_ROWS):
            rows = self._spark.computed(self._spark.query(text))
            yield _SparkPeriodRows(self._spark, rows, self._before, self._period, self._after)


@dataclass(frozen=True)
class _SparkPeriodRows(SparkRows):
    """The rows of periods that the table did not have in a version."""

    period: str
    after: int

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
        return failing_stored(self.spark, expectations, written)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        (given,) = tables
        declaration, sql = given.declaration, given.sql
        began, period = time.monotonic(), identifier(self.period)
        _check_periods(self, declaration.table_name, sql, self.period, period)
        (found,) = self.records(f"SELECT count(DISTINCT {period}) AS n FROM ({sql})")
        created = self.spark.ensure_table(declaration)
        if self.spark.catalog.version(self.spark.full_name(declaration)) != self.after:
            raise CommitConflict(f"Another writer committed to {self.spark.full_name(declaration)} after {self.after}.")
        rows = self.spark.query(sql, rows=self.frame)
        wrote = self.spark.write_result(declaration, None)
        if found["n"]:
            statement = insert_missing_sql(self.spark.full_name(declaration), "{rows}", self.period)
            wrote = self.spark.merge_following(declaration, statement, rows, "", self.after)
        shown = {**more, "strategy": "append_by_period", "periods added": found["n"]}
        yield materialize_by(self.spark, declaration, created, began, wrote, rows, **shown)


def _attached(declaration: TableDeclaration) -> str:
    """A table's name, for DuckDB."""
    return attached(declaration.table_name)
