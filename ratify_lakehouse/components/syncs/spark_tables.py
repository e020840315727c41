"""The source and the tables of a sync, by Spark (see `SyncTables`)."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.syncs.needed_rows import read_needed
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination, find_destination
from ratify_lakehouse.components.syncs.sync_position import SyncPosition, insertion_of
from ratify_lakehouse.components.syncs.sync_state import tables_written, unsettled
from ratify_lakehouse.components.syncs.sync_tables import PreparedChanges, SyncTables
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.merge_statements import TableChanges, insert_sql
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, versions_before
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CommitConflict, ReadBeforeErasure, TableMissing
from ratify_lakehouse.sql.spark_sql import at_version, no_rows, readable, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkTables(SyncTables):
    """The source and the tables of one attempt; rows are DataFrames."""

    sql: RuleDialect = SPARK

    def __init__(self, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> None:
        self._spark, self._duckdb, self._sync = spark, duckdb, sync
        self._before = versions_before(spark, *tables_written(sync, self.catalog.connection.name))

    @classmethod
    @contextmanager
    def opened(cls, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> "Generator[SparkTables]":
        """Yield what an attempt needs."""
        yield cls(spark, duckdb, sync)

    @property
    def catalog(self) -> UnityCatalog:
        """See `SyncTables`."""
        return self._spark.catalog

    @property
    def position(self) -> SyncPosition:
        """See `SyncTables`."""
        opened = partial(TableLog.opened, self.catalog)
        return SyncPosition(self.catalog, self._spark, self._sync, opened, partial(unsettled, self, self._sync))

    def full_name(self, declaration: TableDeclaration) -> str:
        """See `RowQueries`."""
        return self._spark.full_name(declaration)

    def query(self, text: str, **relations: "DataFrame") -> "DataFrame":
        """See `RowQueries`."""
        return self._spark.query(text, **relations)

    def rows(self, frame: "DataFrame") -> list[dict[str, Any]]:
        """See `RowQueries`."""
        return self._spark.rows(frame)

    def computed(self, frame: "DataFrame") -> "DataFrame":
        """See `RowQueries`."""
        return self._spark.computed(frame)

    def shown_rows(self, declaration: TableDeclaration, frame: "DataFrame") -> list[dict[str, Any]]:
        """See `SyncTables`."""
        types = declaration.column_types
        columns = (readable(name, types.get(name, "")) for name in declaration.shown_columns)
        return self._spark.rows(frame.selectExpr("change", *columns))

    def source(self, *, at_once: bool = False) -> SourceRows:
        """See `SyncTables`."""
        return read_needed(self._spark, self._duckdb, self._sync, self.position, at_once=at_once)

    def destination(self, given: Mapping[str, str]) -> SyncDestination:
        """See `SyncTables`."""
        return find_destination(self._spark, self._sync, given)

    def stored(self, destination: SyncDestination) -> str:
        """See `SyncTables`."""
        if destination.exists:
            return at_version(table_name(self.full_name(destination.table)), destination.version)
        return no_rows(destination.table.column_types)

    def rows_now(self, declaration: TableDeclaration) -> "DataFrame":
        """See `SyncTables`."""
        try:
            version = self.catalog.version(self.full_name(declaration))
        except TableMissing:
            return self._spark.query(f"SELECT * FROM {no_rows(declaration.column_types)}")
        return self._at(declaration, version)

    def _at(self, declaration: TableDeclaration, version: int) -> "DataFrame":
        return self._spark.query(f"SELECT * FROM {at_version(self._spark.sql_name(declaration), version)}")

    def ensure_table(self, declaration: TableDeclaration) -> bool:
        """See `SyncTables`."""
        return self._spark.ensure_table(declaration)

    def update(self, declaration: TableDeclaration, changes: str, **relations: "DataFrame") -> None:
        """See `SyncTables`."""
        full_name = self.full_name(declaration)

        def once() -> None:
            after = self.catalog.version(full_name)
            refuse_erased(self._spark, full_name, self._before[full_name])
            found = self.computed(self.query(changes, stored=self._at(declaration, after), **relations))
            if not found.isEmpty():
                self._spark.merge_changes(declaration, TableChanges(found), "", after)

        retried(once, self._spark.attempts, unless=(ReadBeforeErasure,))

    def write(self, prepared: PreparedChanges) -> WriteResult:
        """See `SyncTables`."""
        spark, sync = self._spark, self._sync
        table, changes, destination = prepared.destination.table, prepared.changes, prepared.destination
        full_name = spark.full_name(table)
        if (spark.catalog.table(full_name).table_id or "") != destination.table_id:
            raise CommitConflict(f"{full_name} was dropped and created again while it was compared.")
        if changes is None:
            return spark.write_result(table, None)
        refuse_erased(spark, full_name, self._before[full_name])
        after = max(destination.version, 0)
        record = prepared.record.to_json()
        if sync.strategy is SyncStrategy.APPEND:
            return self._append(prepared, changes, record)
        if sync.strategy is SyncStrategy.FULL:
            overwrite = insert_sql(table, full_name, "{rows}", overwrite=True)
            return spark.merge_following(table, overwrite, changes, record, after)
        return spark.merge_changes(table, TableChanges(changes), record, after)

    def _append(self, prepared: PreparedChanges, rows: "DataFrame", record: str) -> WriteResult:
        table, source, position = prepared.destination.table, prepared.source, self.position
        insert = insert_sql(table, self.full_name(table), "{rows}")
        app_id, version = insertion_of(self._sync, prepared.record)
        # Delta skips the write if all of its versions were inserted meanwhile. It does not if only some of them were.
        if source.of_new_rows and position.inserted_until(app_id) != source.inserted_until:
            raise CommitConflict(f"Another run of the sync {self._sync.name} has inserted rows since these were read.")
        wrote = self._spark.merge_following(table, insert, rows, record, version, app_id=app_id)
        # Its `txn` is not that of a fence, which may have come before the statement began.
        position.refuse_written()
        return wrote
