"""The source of a sync for a SQL warehouse: a table or a query there, as it is, or rows that DuckDB reads here and sends."""

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged
from ratify_lakehouse.components.strategies.added_rows import added_range, compared_sql
from ratify_lakehouse.components.syncs.duckdb_source import reading, source_text
from ratify_lakehouse.components.syncs.source_files import Inserted, are_local, filled_files, new_files
from ratify_lakehouse.components.syncs.source_rows import SourceRows, insert_stopped
from ratify_lakehouse.components.syncs.staged_upload import uploaded
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.warehouse_queries import WarehouseQueries
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import HistoryNotContinued, TableMissing
from ratify_lakehouse.sql.spark_sql import at_version, table_name
from ratify_lakehouse.sql.table_query import TableName, TableQuery


@contextmanager
def source_on_warehouse(
    queries: WarehouseQueries, duckdb: DuckDB, sync: SyncDeclaration, inserted: Inserted
) -> Generator[SourceRows]:
    """Yield the rows of a sync's source as a query for the warehouse.

    Args:
        queries: The warehouse.
        duckdb: Reads files, and runs queries in its SQL; reads which commits of a source were acknowledged.
        sync: The sync.
        inserted: For the strategy append: of a table as it is only rows that it got since are read, and only
            files that are new.

    Raises:
        TableMissing: a table of the query does not exist.
        SyncRefused: there is no such file.
        RowsNotConverted: a file has lines with other fields.
        HistoryNotContinued: rows since a version are asked for, and the table did not only get rows.
    """
    query = sync.source.query
    if query is not None and query.dialect != "duckdb":
        yield _in_workspace(queries, duckdb, sync, query, inserted)
        return
    with duckdb.session() as session:
        by_file = query is None and sync.strategy is SyncStrategy.APPEND and are_local(sync)
        new = new_files(sync, inserted) if by_file else {}
        text, inputs = source_text(session, duckdb, sync, list(new) or (filled_files(sync)[-1:] if by_file else ()))
        session.readable.check(text)
        with reading(sync), uploaded(queries, sync, session.con, text) as rows:
            yield SourceRows(rows.text, inputs, rows.types, files=list(new.values()))


def _in_workspace(
    queries: WarehouseQueries, duckdb: DuckDB, sync: SyncDeclaration, query: TableQuery, inserted: Inserted
) -> SourceRows:
    found, columns = dict[TableName, InputVersion](), dict[str, Sequence[str]]()
    for name in query.inputs:
        described = queries.described(name.full_name(queries.catalog_name))
        found[name] = InputVersion(described.table_id, described.version)
        columns[str(name)] = [column.name for column in described.columns]
    inputs = {name.full_name(queries.catalog_name): read for name, read in found.items()}

    def relation(name: TableName, version: int | None = None) -> str:
        full_name = table_name(name.full_name(queries.catalog_name))
        return at_version(full_name, found[name].version if version is None else version)

    text = query.resolved(relation)
    types, lineage = queries.types(text), query.lineage(columns)
    table = sync.source.table
    until = inserted(inputs) if table else None
    if table and until is not None:
        full_name, now = table.full_name(queries.catalog_name), found[table].version
        newer = [commit for commit in queries.history(full_name) if until < commit.version <= now]
        rewrites = [commit for commit in reversed(newer) if not commit.only_adds_rows]
        try:
            added = added_range(full_name, until, now, rewrites, lambda: _acknowledged(duckdb, full_name))
        except HistoryNotContinued as error:
            raise insert_stopped(sync, error) from error
        if added.adds:
            text = compared_sql(added, list(types), lambda version: f"SELECT * FROM {relation(table, version)}")
        else:
            text = f"SELECT * FROM ({text}) WHERE false"
    return SourceRows(text, inputs, types, lineage=lineage)


def _acknowledged(duckdb: DuckDB, full_name: str) -> Collection[int]:
    """The versions that were acknowledged; none of a table that the catalog does not know."""
    try:
        table_id = duckdb.catalog.table(full_name).table_id or ""
    except TableMissing:
        return ()
    with duckdb.session() as session:
        return acknowledged(session, table_id)
