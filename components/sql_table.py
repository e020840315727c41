"""A table that a Spark MERGE makes equal to a query, whose rows are validated first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from components.expectations.expectation_checks import check_results
from components.expectations.expectation_rules import Action, Expectations
from components.expectations.validation import validation_result
from components.landing_order import LANDING, landed_rows
from components.table_asset import asset_key, materialize_to_match
from ingest.file_source import LOAD_COLUMNS
from resources.column_types import sql_type
from resources.declarations import Column, TableDeclaration
from resources.errors import ExpectationFailed, QueryMismatch, UnsafeDeclaration
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import identifier, table_name
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOADED = {column.name for column in LOAD_COLUMNS}
_SHOWN_KEYS = 3


@dataclass(frozen=True)
class ValidatedQuery:
    """A table, its query, and what its rows are validated by.

    Attributes:
        declaration: The table, with keys; its columns are inferred from the query, but for what is declared of them.
        query: Gives the rows.
        expectations: Of the query's rows.
        helpers: Columns of the query that only the expectations use.

    Raises:
        UnsafeDeclaration: the query lacks a key, a declared column or a helper.
    """

    declaration: TableDeclaration
    query: TableQuery
    expectations: Expectations
    helpers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "*" not in self.query.columns:
            self._check_columns(self.query.columns)

    @cached_property
    def quarantine(self) -> TableDeclaration | None:
        """The table of the rows that an expectation quarantines; None without such an expectation."""
        if not self.expectations.named(Action.QUARANTINE):
            return None
        return TableDeclaration(
            layer=self.declaration.layer,
            name=f"{self.declaration.name}_quarantine",
            columns=(
                Column("row_hash", "string", "SHA-256 of the row"),
                Column("rule", "string", "Names of the expectations that it fails, by comma"),
                Column(
                    "row", "string", "The row as the query gives it, JSON", pii=any(c.pii for c in self.declaration.columns)
                ),
                Column("rows", "bigint", "How many such rows there are"),
            ),
            comment=f"Rows of {self.declaration.name} that fail an expectation, with its name",
            writer=self.declaration.writer,
            operations=self.declaration.operations,
            owner=self.declaration.owner,
            keys=("row_hash",),
        )

    @property
    def written(self) -> tuple[TableDeclaration, ...]:
        """The tables that are written: the table, and its quarantine if it has one."""
        return (self.declaration, *([self.quarantine] if self.quarantine else []))

    def stored(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> TableDeclaration:
        """Return the table with the columns that the query gives.

        Args:
            types: Types of the query's columns by name, in Spark SQL's words.
            lineage: The columns that each is computed from (see `TableQuery.lineage`).

        Raises:
            QueryMismatch: a column is missing, or has another type than declared.
        """
        self._check_columns(types)
        declared = {column.name: column for column in self.declaration.columns}
        omitted = {*self.helpers, LANDING}
        columns = [
            replace(self._typed(declared.get(name, Column(name, "")), type_text), sources=lineage.get(name, ()))
            for name, type_text in types.items()
            if name not in omitted
        ]
        return replace(self.declaration, columns=tuple(columns), inferred=False)

    def _typed(self, column: Column, found: str) -> Column:
        if column.type and sql_type(column.type).spark != sql_type(found).spark:
            raise QueryMismatch(
                f"{self.declaration.table_name}, column {column.name}: its declared type is {column.type}, but the query "
                f"gives {found}; write CAST(… AS {column.type.upper()}) AS {column.name} in the query, or declare {found}."
            )
        return replace(column, type=found)

    def _check_columns(self, found: Sequence[str] | Mapping[str, str]) -> None:
        wanted = [
            *(("a key", name, "keys", number) for number, name in enumerate(self.declaration.keys)),
            *(("a declared column", column.name, "columns", at) for at, column in enumerate(self.declaration.columns)),
            *(("a helper", name, "helpers", number) for number, name in enumerate(self.helpers)),
        ]
        for what, name, *field in wanted:
            if name not in found:
                raise UnsafeDeclaration(
                    f"{self.declaration.table_name}: {name!r} is {what}, but no column of the query, which gives "
                    f"{', '.join(found)}.",
                    *field,
                )


def read_query(file: Path) -> TableQuery:
    """Return the query of a file.

    Raises:
        UnsafeDeclaration: it is missing.
        InvalidDeclaration: it is not one query that names its tables with their schemas.
    """
    where = "/".join(file.parts[-3:])
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise UnsafeDeclaration(f"{where} does not exist; write the table's query there.", "sql") from None
    return TableQuery.parsed(text.rstrip().removesuffix(";"), "databricks", where)


def materialize(spark: Spark, table: ValidatedQuery) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Make the tables equal to the query's rows that pass, and to those in quarantine; yield the results of all.

    Raises:
        QueryMismatch: the query gives other columns than declared, or several rows with the same keys; nothing was written.
        ExpectationFailed: rows fail an expectation whose action is to fail; nothing was written.
        TableMissing: an input does not exist.
        CommitConflict: other writers won every attempt.
    """
    catalog = spark.catalog.connection.name
    inputs = {name: spark.catalog.table(name.full_name(catalog)).columns or [] for name in table.query.inputs}
    known = {name: [column.name or "" for column in columns] for name, columns in inputs.items()}
    text = table.query.resolved(lambda name: _relation(spark, table.query, name, known[name]))
    types = dict(spark.sql(text).dtypes)
    lineage = table.query.lineage({str(name): [*columns, LANDING] for name, columns in known.items()})
    declaration = table.stored(types, lineage)
    with spark.cached(spark.sql(table.expectations.validated(text))) as rows:
        (counted,) = spark.rows(spark.sql(table.expectations.counted("{rows}"), rows=rows))
        found = validation_result(counted)
        key = asset_key(declaration)
        if failed := [name for name in table.expectations.named(Action.FAIL) if found.failed.get(name)]:
            yield from check_results(table.expectations, key, found)
            raise ExpectationFailed(
                f"Rows of {key.to_user_string()} fail {', '.join(failed)}; nothing was written.", counted
            )
        columns = ", ".join(map(identifier, declaration.column_names))
        accepted = spark.sql(f"SELECT {columns} FROM {{rows}} WHERE {table.expectations.accepted()}", rows=rows)
        _check_keys(spark, declaration, accepted)
        given = {"rows of the query": found.rows}
        yield materialize_to_match(spark, declaration, lambda: accepted, **given)
        if table.quarantine:
            quarantined = _quarantined(spark, table.expectations, types, rows)
            yield materialize_to_match(spark, table.quarantine, lambda: quarantined, **given)
    yield from check_results(table.expectations, key, found)


def _relation(spark: Spark, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
    full_name = name.full_name(spark.catalog.connection.name)
    if LANDING in query.text and set(columns) >= _LOADED:
        return f"(\n{landed_rows(spark, full_name)}\n)"
    return table_name(full_name)


def _check_keys(spark: Spark, declaration: TableDeclaration, accepted: "DataFrame") -> None:
    keys = ", ".join(map(identifier, declaration.keys))
    several = f"SELECT {keys}, count(*) AS ratify_rows FROM {{rows}} GROUP BY ALL HAVING count(*) > 1 LIMIT {_SHOWN_KEYS}"
    if found := spark.rows(spark.sql(several, rows=accepted)):
        shown = "; ".join(", ".join(f"{name}={row[name]!r}" for name in declaration.keys) for row in found)
        keys = ", ".join(declaration.keys)
        raise QueryMismatch(
            f"{declaration.table_name}: several rows of the query have the same {keys}: {shown}. "
            "Name the keys that identify a row, or declare under `unique` which of them is the latest."
        )


def _quarantined(spark: Spark, expectations: Expectations, types: Mapping[str, str], rows: "DataFrame") -> "DataFrame":
    given = ", ".join(identifier(name) for name in types if name != LANDING)
    row = f"SELECT to_json(struct({given})) AS row, failed FROM {{rows}} WHERE {expectations.quarantined()}"
    columns = "sha2(row, 256) AS row_hash, array_join(failed, ', ') AS rule, row, count(*) AS rows"
    return spark.sql(f"SELECT {columns} FROM ({row}) GROUP BY ALL", rows=rows)
