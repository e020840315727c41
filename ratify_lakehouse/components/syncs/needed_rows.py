"""Which rows of a sync's source Spark has to read: those that the destination may lack, where they are known."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ratify_lakehouse.components.query_engines import has_versions
from ratify_lakehouse.components.syncs.converted_rows import ConvertedColumn
from ratify_lakehouse.components.syncs.source_files import are_local, filled_files, new_files
from ratify_lakehouse.components.syncs.source_rows import SourceRows, read_changed, read_files, read_source
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import find_destination
from ratify_lakehouse.components.syncs.sync_position import SyncPosition
from ratify_lakehouse.declarations import records_changes
from ratify_lakehouse.delta.computed_inputs import FullRecompute, InputVersion
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued
from ratify_lakehouse.sql.table_query import TableName


def read_needed(
    spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, position: SyncPosition, *, at_once: bool = False
) -> SourceRows:
    """Return the source's rows; of a table as it is only those that the destination may lack, where they are known.

    In the strategies append and cdc these are the rows that it got since the last pass, in the strategy merge those of the
    keys of changed rows. Of files that are inserted, they are those of the first one that is new: a commit of Spark has one
    `txn`.

    Args:
        spark: The session.
        duckdb: For a query in its SQL.
        sync: The sync.
        position: What it has read before.
        at_once: Whether those of all new files are asked for, which no single commit can insert.

    Raises:
        As `read_source`.
    """
    table = sync.source.table
    if table and sync.source.query and sync.strategy is SyncStrategy.MERGE and _has_feed(spark, table):
        found = position.undisturbed()
        # What changed may not be known.
        with suppress(FullRecompute):
            if found:
                last, version = found
                changed = read_changed(spark, sync.source.query, last, lambda types: _keys(spark, sync, types))
                return replace(changed, destination_version=version)
    if sync.source.query is None and sync.strategy is SyncStrategy.APPEND and are_local(sync):
        return _of_new_files(spark, sync, position, at_once=at_once)
    if table and sync.strategy is SyncStrategy.APPEND:
        return _new_rows(spark, duckdb, sync, position, table)
    if table and sync.strategy is SyncStrategy.CDC:
        return _new_events(spark, duckdb, sync, position)
    return read_source(spark, duckdb, sync, {})


def _new_events(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, position: SyncPosition) -> SourceRows:
    last = position.last_record()
    with suppress(HistoryNotContinued):
        return read_source(spark, duckdb, sync, last.inputs if last else {})
    # Events that were applied before change nothing.
    return read_source(spark, duckdb, sync, {})


def _new_rows(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, position: SyncPosition, table: TableName) -> SourceRows:
    full_name = table.full_name(spark.catalog.connection.name)
    found = spark.catalog.table(full_name)
    if not has_versions(found):
        return read_source(spark, duckdb, sync, {})
    table_id = found.table_id or ""
    until = position.insertions().of({full_name: InputVersion(table_id, 0)})
    source = read_source(spark, duckdb, sync, {} if until is None else {full_name: InputVersion(table_id, until)})
    return replace(source, of_new_rows=True, inserted_until=until)


def _has_feed(spark: Spark, table: TableName) -> bool:
    """Whether a table says which of its rows have changed: to find that out takes longer than to read all of them."""
    found = spark.catalog.table(table.full_name(spark.catalog.connection.name))
    return records_changes(found.properties or {})


def _keys(spark: Spark, sync: SyncDeclaration, types: Mapping[str, str]) -> Sequence[ConvertedColumn]:
    """The keys of the destination, as the source gives them."""
    destination = find_destination(spark, sync, types)
    return [column for column in destination.columns if column.name in destination.table.keys]


def _of_new_files(spark: Spark, sync: SyncDeclaration, position: SyncPosition, *, at_once: bool) -> SourceRows:
    """The rows of files that were not inserted yet; if all were, of one of them."""
    new = new_files(sync, position.insertions().of)
    if not new:
        return read_files(spark, sync, filled_files(sync)[-1:])
    read = list(new) if at_once else list(new)[:1]
    found = replace(read_files(spark, sync, read), files=[new[path] for path in read])
    # By what it was looked up by: a file that changes meanwhile is another one for the next pass.
    return found if at_once else replace(found, inputs=new[read[0]], more_files=len(new) > 1)
