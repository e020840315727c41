"""The source of a sync for a SQL warehouse: a table or a query there, as it is, or rows that DuckDB reads here and sends."""

import csv
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from components.syncs.source_rows import SourceRows, content_of, duckdb_inputs, duckdb_text, local_files
from components.syncs.staged_upload import uploaded
from components.syncs.sync_declaration import SyncDeclaration
from components.syncs.warehouse_queries import WarehouseQueries
from resources.delta.computed_inputs import InputVersion
from resources.duckdb.duckdb_engine import DuckDB
from resources.duckdb.duckdb_errors import translating
from resources.errors import HistoryNotContinued, RowsNotConverted, SyncRefused
from resources.sql.duckdb_sql import literal
from resources.sql.spark_sql import at_version, table_name
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# What DuckDB takes texts of JSON for; as text they are sent as they are.
_TEXTS = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID")

Inserted = Callable[[Mapping[str, InputVersion]], int | None]
"""Returns up to which version of such a source the rows were inserted; None if none were."""


@contextmanager
def source_on_warehouse(
    queries: WarehouseQueries, duckdb: DuckDB, sync: SyncDeclaration, inserted: Inserted
) -> Generator[SourceRows]:
    """Yield the rows of a sync's source as a query for the warehouse.

    Args:
        queries: The warehouse.
        duckdb: Reads files, and runs queries in its SQL.
        sync: The sync.
        inserted: For the mode insert and a table as it is: only rows that it got since are read.

    Raises:
        TableMissing: a table of the query does not exist.
        SyncRefused: there is no such file.
        RowsNotConverted: a file has lines with other fields.
        HistoryNotContinued: rows since a version are asked for, and the table did not only get rows.
    """
    query = sync.source.query
    if query is not None and query.dialect != "duckdb":
        yield _in_workspace(queries, sync, query, inserted)
        return
    with duckdb.session() as session:
        if query is not None:
            inputs = duckdb_inputs(duckdb.catalog, query)
            session.attach()
            text = duckdb_text(query)
        else:
            local = "://" not in sync.source.files
            files = local_files(sync) if local else []
            inputs = {f"file:{sync.source.files}": content_of(files) if local else InputVersion("", -1)}
            if not local:
                session.attach()
            text = _file_text(session.con, sync, files)
        with _reading(sync), uploaded(queries, sync, session.con, text) as rows:
            yield SourceRows(rows.text, inputs, rows.types)


@contextmanager
def _reading(sync: SyncDeclaration) -> Generator[None]:
    import duckdb

    try:
        with translating(f"read the source of the sync {sync.name}"):
            yield
    except duckdb.Error as error:
        # What follows is advice for those who write SQL of DuckDB.
        text = " ".join(str(error).partition("Possible")[0].split())
        raise RowsNotConverted(f"The source of the sync {sync.name} cannot be read: {text}") from error


def _in_workspace(queries: WarehouseQueries, sync: SyncDeclaration, query: TableQuery, inserted: Inserted) -> SourceRows:
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
        full_name = table.full_name(queries.catalog_name)
        for commit in queries.history(full_name):
            if until < commit.version <= found[table].version and not commit.only_adds_rows:
                raise HistoryNotContinued(
                    f"{full_name}, the source of the sync {sync.name}, did not only get rows since version {until}: "
                    f"{commit.operation}, version {commit.version}. The mode insert cannot follow that; use merge."
                )
        text = f"{text} EXCEPT ALL SELECT * FROM {relation(table, until)}"
    return SourceRows(text, inputs, types, lineage=lineage)


def _header(sync: SyncDeclaration, files: Sequence[Path]) -> list[str]:
    """The columns of CSV files. Guesses of DuckDB, which can be wrong about few lines, are not needed then.

    Raises:
        SyncRefused: the files have different ones.
    """
    found = list[list[str]]()
    for path in files:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            found.append(next(csv.reader(stream), []))
    if not found[0] or any(each != found[0] for each in found):
        raise SyncRefused(f"The files of {sync.source.files}, the source of the sync {sync.name}, have no header in common.")
    return found[0]


def _file_text(con: "DuckDBPyConnection", sync: SyncDeclaration, files: Sequence[Path]) -> str:
    """The query for the rows of files."""
    listed = [str(path.resolve()) for path in files] or [sync.source.files]
    paths = f"[{', '.join(map(literal, listed))}]"
    if sync.source.format == "parquet":
        return f"SELECT * FROM read_parquet({paths})"
    if sync.source.format == "csv":
        # A quoted empty text is no NULL.
        quoting = "delim = ',', quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false"
        read = f"read_csv({paths}, header = true, {quoting}"
        if not files:
            return f"SELECT * FROM {read}, all_varchar = true)"
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in _header(sync, files))
        return f"SELECT * FROM {read}, auto_detect = false, columns = {{{columns}}})"
    read = f"read_json({paths}, format = 'newline_delimited'"
    with _reading(sync):
        relation = con.sql(f"SELECT * FROM {read}, sample_size = -1)")
    types = zip(relation.columns, map(str, relation.types), strict=True)
    columns = ", ".join(f"{literal(name)}: '{'VARCHAR' if type_ in _TEXTS else type_}'" for name, type_ in types)
    return f"SELECT * FROM {read}, columns = {{{columns}}})"
