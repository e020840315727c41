"""Which rows of a sync's source Spark has to read: those that the destination may lack, where they are known."""

from contextlib import suppress
from dataclasses import replace

from components.query_engines import has_versions
from components.syncs.dead_letters import accumulate, dead_letters
from components.syncs.source_rows import SourceRows, read_changed, read_source
from components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncMode
from components.syncs.sync_position import SyncPosition, insert_app_id
from resources.declarations import records_changes
from resources.delta.computed_inputs import FullRecompute, InputVersion
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import HistoryNotContinued
from resources.spark.spark_engine import Spark
from resources.sql.table_query import TableName


def position_of(spark: Spark, sync: SyncDeclaration) -> SyncPosition:
    """Return what a sync that Spark runs has read before."""

    def unsettled() -> bool:
        return sync.row_errors is RowErrors.SKIP and not accumulate(sync) and dead_letters(spark, sync) > 0

    return SyncPosition(spark.catalog, spark, sync, unsettled)


def read_needed(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> SourceRows:
    """Return the source's rows; of a table as it is only those that the destination may lack, where they are known.

    In the modes insert and cdc these are the rows that it got since the last pass, in the mode merge those of the keys of
    changed rows.

    Raises:
        As `read_source`.
    """
    position, table = position_of(spark, sync), sync.source.table
    if table and sync.source.query and sync.mode is SyncMode.MERGE and _has_feed(spark, table):
        found = position.undisturbed()
        # What changed may not be known; a key may be no column, which is an error of the whole source, too.
        with suppress(FullRecompute, KeyError):
            if found:
                last, version = found
                return replace(read_changed(spark, sync, sync.source.query, last), destination_version=version)
    if table is None or sync.mode not in (SyncMode.INSERT, SyncMode.CDC):
        return read_source(spark, duckdb, sync, {})
    if sync.mode is SyncMode.CDC:
        last = position.last_record()
        with suppress(HistoryNotContinued):
            return read_source(spark, duckdb, sync, last.inputs if last else {})
        # Events that were applied before change nothing.
        return read_source(spark, duckdb, sync, {})
    full_name = table.full_name(spark.catalog.connection.name)
    found = spark.catalog.table(full_name)
    if not has_versions(found):
        return read_source(spark, duckdb, sync, {})
    table_id = found.table_id or ""
    until = position.inserted_until(insert_app_id(sync, {full_name: InputVersion(table_id, 0)}))
    source = read_source(spark, duckdb, sync, {} if until is None else {full_name: InputVersion(table_id, until)})
    return replace(source, of_new_rows=True, inserted_until=until)


def _has_feed(spark: Spark, table: TableName) -> bool:
    """Whether a table says which of its rows have changed: to find that out takes longer than to read all of them."""
    found = spark.catalog.table(table.full_name(spark.catalog.connection.name))
    return records_changes(found.properties or {})
