"""A sync: rows of a source that are written into a table of the catalog, in one commit, in one of several strategies."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.personal_columns import IsPersonal, PersonalColumns, columns_in
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.sql.spark_sql import table_name
from ratify_lakehouse.sql.table_query import TableName, TableQuery


class SyncStrategy(StrEnum):
    """Strategy of a sync: the change that it makes to its destination."""

    APPEND = "append"
    MERGE = "merge"
    MIRROR = "mirror"
    FULL = "full"
    SCD2 = "scd2"
    CDC = "cdc"

    @property
    def keyed(self) -> bool:
        """Whether rows are found by keys."""
        return self not in (SyncStrategy.APPEND, SyncStrategy.FULL)


class SyncEngine(StrEnum):
    """Engine that runs a sync."""

    SPARK = "spark"
    DUCKDB = "duckdb"
    WAREHOUSE = "warehouse"


class RowErrors(StrEnum):
    """What happens if rows of the source do not fit the destination."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class SyncSource:
    """Where the rows come from: a query over tables of the catalog, or files.

    Attributes:
        query: The query, in the SQL of Spark or DuckDB; None for files.
        files: Path or URL of a file, or a pattern of several.
        format: Of the files: csv, parquet or json (a line an object).
    """

    query: TableQuery | None = None
    files: str = ""
    format: str = ""

    @property
    def table(self) -> TableName | None:
        """The table, if the source is one as it is."""
        query = self.query
        return query.inputs[0] if query and query.text == whole_table(query.inputs[0]) else None


def whole_table(name: TableName) -> str:
    """Return the query that gives a table as it is."""
    return f"SELECT * FROM {table_name(str(name))}"


@dataclass(frozen=True)
class MappedColumn:
    """A column of the destination that the source gives under another name, or in another type.

    Attributes:
        name: In the destination.
        source: In the source.
        cast: The type that the value is cast to, in Spark SQL's words, even where digits are lost; empty: the destination's,
            and a value that would be changed by it is an error.
        pii: Personal data: messages and samples leave its values out. None: it is that if the source's is.
    """

    name: str
    source: str
    cast: str = ""
    pii: bool | None = None


@dataclass(frozen=True)
class DeletionGuards:
    """Which rows of the destination a mirror may delete.

    Attributes:
        empty_source: Whether a source without rows deletes all.
        max_fraction: The greatest part of the destination's rows that one pass may delete, from 0 to 1.
        scope: Columns of the destination: only rows are deleted whose values in them some row of the source has.
        tracked: Whether only rows are deleted whose keys the sync itself has written.
    """

    empty_source: bool = False
    max_fraction: float = 1.0
    scope: tuple[str, ...] = ()
    tracked: bool = False


@dataclass(frozen=True)
class ChangeEvents:
    """How a row of the source is an event of change (strategy `cdc`).

    Attributes:
        operation: Column of the source that says what happened; the destination does not have it.
        sequence_by: Column that orders the events; the destination has it.
        apply_as_deletes: Values of `operation` of an event that deletes the row of its keys.
        apply_as_truncates: Likewise, of one that deletes all rows that are earlier in `sequence_by`.
    """

    operation: str
    sequence_by: str
    apply_as_deletes: tuple[str, ...] = ("d", "delete", "DELETE")
    apply_as_truncates: tuple[str, ...] = ("t", "truncate", "TRUNCATE")


@dataclass(frozen=True)
class HistoryRules:
    """Rules for the former versions of rows that a sync of the strategy `scd2` keeps.

    Attributes:
        updated_at: Column of the source with the time of a row's last change; empty: the time of the source's last commit.
        ignored: Columns whose change alone makes no new version.
        close_deleted: Whether the version of a row that the source no longer has is closed.
    """

    updated_at: str = ""
    ignored: tuple[str, ...] = ()
    close_deleted: bool = True


@dataclass(frozen=True)
class SyncDeclaration:
    """A sync.

    Attributes:
        name: Of the sync, unique in the project.
        source: Where the rows come from.
        destination: The table that they are written to.
        strategy: What is done there.
        keys: Columns of the destination that identify a row.
        comment: What a row is; the comment of a destination that the sync creates.
        owner: Team that is responsible.
        create_if_missing: Whether the destination is created with the columns of the source.
        row_errors: What happens to rows that do not fit.
        columns: Columns with another name or type than in the source; all others of the source have those that they have.
        only_mapped: Whether the destination gets only `columns`.
        latest: Of several rows with the same keys the one is taken that is greatest in these columns of the destination;
            none: several are an error.
        guards: Of a mirror.
        events: Of the strategy `cdc`.
        history: Of the strategy `scd2`.
        engine: What runs it.
        batch: Rows of one statement, where rows are sent to a SQL warehouse.
        personal: What is known of personal data in the tables that its source reads.
    """

    name: str
    source: SyncSource
    destination: TableName
    strategy: SyncStrategy
    keys: tuple[str, ...] = ()
    comment: str = ""
    owner: str = "data-platform"
    create_if_missing: bool = False
    row_errors: RowErrors = RowErrors.FAIL
    columns: tuple[MappedColumn, ...] = ()
    only_mapped: bool = False
    latest: tuple[str, ...] = ()
    guards: DeletionGuards = field(default_factory=DeletionGuards)
    events: ChangeEvents | None = None
    history: HistoryRules = field(default_factory=HistoryRules)
    engine: SyncEngine = SyncEngine.SPARK
    batch: int = 1000
    personal: PersonalColumns = field(default_factory=PersonalColumns, compare=False)

    def personal_in(self, catalog: UnityCatalog) -> IsPersonal:
        """Return which columns of the source are computed from personal data."""
        query = self.source.query
        return self.personal.of_query(query, columns_in(catalog)) if query else lambda _: False

    @property
    def code_version(self) -> str:
        """What changes if what the sync writes may change, though its source has not."""
        query = self.source.query.text if self.source.query else ""
        declared = (
            *(query, self.source.files, str(self.destination), self.strategy, self.keys, self.columns, self.only_mapped),
            *(self.latest, self.guards, self.events, self.history, self.row_errors),
        )
        return hashlib.sha256(repr(declared).encode()).hexdigest()[:16]

    @property
    def table(self) -> TableDeclaration:
        """The destination, of which no column is known yet."""
        return TableDeclaration(
            layer=self.destination.schema,
            name=self.destination.table,
            catalog=self.destination.catalog,
            columns=(),
            comment=self.comment,
            writer=Engine.SPARK,
            operations=frozenset({"MERGE", "WRITE"}),
            owner=self.owner,
            inferred=True,
        )

    def mapped(self, given: Mapping[str, str]) -> list[MappedColumn]:
        """Return the columns of the destination that the source gives.

        Args:
            given: Types of the source's columns by name.
        """
        named = {column.source.casefold() for column in self.columns}
        operation = self.events.operation.casefold() if self.events else None
        others = [MappedColumn(name, name) for name in given if name.casefold() not in named | {operation}]
        return [*self.columns, *([] if self.only_mapped else others)]
