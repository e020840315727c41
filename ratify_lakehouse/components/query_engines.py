"""The engines that compute the rows of a query and write them: what `sql_table.materialize` needs of Spark and of DuckDB."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK, RuleDialect
from ratify_lakehouse.components.keyed_rows import check_stored_keys
from ratify_lakehouse.components.landing_order import spark_relation
from ratify_lakehouse.components.table_asset import materialize_by, materialize_to_match
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.query_types import spark_types, with_plain_sums
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.duckdb.table_overwrite import overwrite_to_match
from ratify_lakehouse.engines.spark.interpreted_queries import FEW_ROWS, interpreted
from ratify_lakehouse.engines.spark.overtaken_writes import note_missing
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import QueryMismatch, TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from databricks.sdk.service.catalog import TableInfo
    from pyspark.sql import DataFrame

VALIDATED = "ratify_validated_rows"
"""The temporary table of the rows that DuckDB has computed, as the expectations validate them."""

_WRITTEN = "ratify_written_rows"


@dataclass(frozen=True)
class RowsToWrite:
    """Rows of a query that a table gets.

    Attributes:
        declaration: The table.
        sql: Their query, which gives the table's columns; `{rows}` stands for all rows.
        number: How many of all rows they are; a quarantine may have one row for several.
    """

    declaration: TableDeclaration
    sql: str
    number: int


class ValidatedRows(Protocol):
    """The rows of a query, as its expectations validate them; in SQL, `{rows}` stands for them."""

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a query over them; none if no row had to be computed."""
        ...

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        """Return how many rows of the written tables fail expectations that tell it; None if all rows were computed."""
        ...

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        """Make tables, created where they are missing, equal to queries over them, and yield their materializations.

        Args:
            tables: The rows of the table, and of its quarantine if it has one.
            more: Further metadata.

        Raises:
            CommitConflict: other writers won every attempt.
        """
        ...


class QueryEngine(Protocol):
    """An engine that computes queries over tables of the catalog."""

    catalog: UnityCatalog
    dialect: RuleDialect

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """Return what stands for a table in the text that the engine gets; `columns` are those that the table has."""
        ...

    def typed(self, text: str) -> tuple[str, Mapping[str, str]]:
        """Return a query for the same rows with columns that a table can have, and their types in Spark SQL's words.

        Raises:
            QueryMismatch: no type of a table's column holds the values of one.
        """
        ...

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """Return the query for those rows of a query, which makes a table, that are to be computed."""
        ...

    def ensure(self, declaration: TableDeclaration) -> bool:
        """Create a table where it is missing; return whether it was. One of an earlier declaration gets columns it lacks."""
        ...

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """Compute the rows of a query of `Expectations.validated`, once for all uses in the block."""
        ...


def input_columns(catalog: UnityCatalog, query: TableQuery) -> dict[TableName, Sequence[str]]:
    """Return the columns of the tables that a query reads, in their order.

    Raises:
        TableMissing: one does not exist.
    """
    found = {name: catalog.table(name.full_name(catalog.connection.name)).columns or [] for name in query.inputs}
    return {name: [column.name or "" for column in columns] for name, columns in found.items()}


def has_versions(table: "TableInfo") -> bool:
    """Return whether a table of the catalog is one whose versions are known: a managed one."""
    return table.table_type is not None and table.table_type.value == "MANAGED"


def versions_of(catalog: UnityCatalog, tables: Iterable[str]) -> dict[str, int]:
    """Return the versions that tables have by now; -1 where one does not exist, or has none."""
    versions = dict[str, int]()
    for full_name in tables:
        try:
            versions[full_name] = catalog.version(full_name) if has_versions(catalog.table(full_name)) else -1
        except TableMissing:
            versions[full_name] = -1
    return versions


def read_by_duckdb(catalog: UnityCatalog, name: TableName) -> str:
    """Return the name of a table of the catalog, for DuckDB.

    Raises:
        QueryMismatch: it is of another catalog.
    """
    if name.catalog not in ("", catalog.connection.name):
        raise QueryMismatch(f"{name} belongs to another catalog, which DuckDB cannot read here: use Spark for this query.")
    return attached(f"{name.schema}.{name.table}")


class SparkQueries:
    """Spark, which makes a table equal to a query by a MERGE."""

    dialect = SPARK

    def __init__(self, spark: Spark, query: TableQuery, *written: TableDeclaration) -> None:
        self.catalog = spark.catalog
        self._spark = spark
        # Before any input is read: what others commit to them from now on may be of newer inputs.
        self._before = versions_of(self.catalog, map(spark.full_name, written))
        note_missing(spark, self._before)
        self._tables = {*self._before, *(name.full_name(self.catalog.connection.name) for name in query.inputs)}

    def few_rows(self, most: int) -> AbstractContextManager[None]:
        """Let Spark interpret the queries of the block, if the tables read and written have no more rows in all."""
        few = self._rows is not None and self._rows <= most
        return interpreted(self._spark.session) if few else nullcontext()

    @cached_property
    def _rows(self) -> int | None:
        """How many rows the tables have in all; None if that is not known without counting them."""
        total = 0
        for full_name in self._tables:
            try:
                log = TableLog.opened(self.catalog, full_name)
            except TableMissing:
                continue
            rows = log.rows() if log else None
            if rows is None:
                return None
            total += rows
        return total

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. Rows of landed files have the column `_landing` where the query reads it."""
        return spark_relation(self._spark, query, name, columns)

    def typed(self, text: str) -> tuple[str, Mapping[str, str]]:
        """See `QueryEngine`."""
        return text, self.types(text)

    def types(self, text: str) -> Mapping[str, str]:
        """Return the types of a query's columns, in Spark SQL's words."""
        return self._spark.types(text)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: all of them."""
        return text

    def ensure(self, declaration: TableDeclaration) -> bool:
        """See `QueryEngine`."""
        return self._spark.ensure_table(declaration)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        with self.few_rows(FEW_ROWS):
            yield SparkRows(self._spark, self._spark.computed(self._spark.query(text)), self._before)


@dataclass(frozen=True)
class SparkRows:
    """Rows that Spark has computed, and the versions that the tables had before.

    Attributes:
        spark: The session.
        frame: The rows.
        before: The versions of the tables that are written, by full name, when no input was read yet.
    """

    spark: Spark
    frame: "DataFrame"
    before: Mapping[str, int]

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.spark.rows(self.spark.query(sql, rows=self.frame))

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        return None

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        for given in tables:
            declaration, sql = given.declaration, given.sql
            after = self.before[self.spark.full_name(declaration)]
            made = materialize_to_match(
                self.spark, declaration, lambda sql=sql: self.spark.query(sql, rows=self.frame), after, **more
            )
            if (made.metadata or {}).get("dagster/row_count") != given.number:
                # Unless another writer was here meanwhile: a MERGE updates all rows of a key alike.
                check_stored_keys(self.spark, declaration)
            yield made


class DuckDBQueries:
    """DuckDB, which replaces a table's files in one version. Spark creates the tables."""

    dialect = DUCKDB

    def __init__(self, session: DuckDBSession, spark: Spark, *written: TableDeclaration) -> None:
        self.catalog = spark.catalog
        self._session, self._spark = session, spark
        # As for Spark.
        self._before = versions_of(self.catalog, map(spark.full_name, written))
        for table in written:
            session.fences.note(spark.full_name(table), session.log(table))

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`.

        Raises:
            QueryMismatch: the table is of another catalog.
        """
        return read_by_duckdb(self.catalog, name)

    def typed(self, text: str) -> tuple[str, Mapping[str, str]]:
        """See `QueryEngine`: sums of whole numbers are BIGINT, as Spark has them."""
        self._session.attach()
        with translating("read the columns of a query"):
            found = spark_types(self._session.con, text)
        text, found = with_plain_sums(text, found)
        for name, (held, type_) in found.items():
            if type_ is None:
                raise QueryMismatch(
                    f"Column {name} of the query is {held} in DuckDB, and no column of a table can be: write "
                    f"CAST(… AS …) AS {name}, with a type that Spark has, too."
                )
        return text, {name: type_ for name, (_, type_) in found.items() if type_}

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: all of them."""
        return text

    def ensure(self, declaration: TableDeclaration) -> bool:
        """See `QueryEngine`."""
        return _ensure(self._spark, self._session, declaration)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        self._session.rows(f"CREATE OR REPLACE TEMP TABLE {VALIDATED} AS {text}")
        yield DuckDBRows(self._session, self._spark, self._before)
        self._session.rows(f"DROP TABLE {VALIDATED}")


@dataclass(frozen=True)
class DuckDBRows:
    """Rows that DuckDB has computed.

    Attributes:
        session: Has them.
        spark: Creates the tables.
        before: As of `SparkRows`.
    """

    session: DuckDBSession
    spark: Spark
    before: Mapping[str, int]

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.session.records(self.over(sql))

    def over(self, sql: str) -> str:
        """Return a query over these rows, in which `{rows}` stands for them, as DuckDB gets it."""
        return sql.replace("{rows}", VALIDATED)

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        return None

    def created(self, declaration: TableDeclaration) -> bool:
        """As `QueryEngine.ensure`."""
        return _ensure(self.spark, self.session, declaration)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        for given in tables:
            yield self._write(given.declaration, given.sql, **more)

    def _write(self, declaration: TableDeclaration, sql: str, **more: Any) -> dg.MaterializeResult[Any]:
        began = time.monotonic()
        created = self.created(declaration)
        self.session.rows(f"CREATE OR REPLACE TEMP VIEW {_WRITTEN} AS {self.over(sql)}")
        after = self.before.get(self.spark.full_name(declaration))
        wrote = overwrite_to_match(self.session, declaration, _WRITTEN, after)
        if wrote.commit:
            # The attached catalog shows the table as it was before.
            self.session.attach()
        return materialize_by(self.spark, declaration, created, began, wrote, self.session, **more)


def _ensure(spark: Spark, session: DuckDBSession, declaration: TableDeclaration) -> bool:
    try:
        existing = spark.catalog.table(spark.full_name(declaration)).columns or []
    except TableMissing:
        created = spark.ensure_table(declaration)
        # The attached catalog does not show it yet.
        session.attach()
        return created
    known = {(column.name or "").lower() for column in existing}
    if missing := [column for column in declaration.columns if column.name.lower() not in known]:
        session.add_columns(declaration, missing)
    return False
