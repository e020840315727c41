"""What DuckDB reads of the source of a sync: tables of the catalog by a query in its SQL, or files."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.syncs.source_files import are_local, by_header, file_inputs, local_files
from ratify_lakehouse.components.syncs.source_rows import MALFORMED, duckdb_inputs, duckdb_text
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.query_types import spark_type_of
from ratify_lakehouse.errors import QueryMismatch, RowsNotConverted
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

# What DuckDB takes texts of JSON for; they stay as they are.
_TEXTS = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID")
# Types that DuckDB alone has, whose values these hold.
_OTHERS = {"hugeint": "decimal(38,0)", "uuid": "string", "enum": "string", "time": "string"}


def source_inputs(duckdb: DuckDB, sync: SyncDeclaration, files: Sequence[Path] = ()) -> dict[str, InputVersion]:
    """Return the versions that the tables of a source have now, or the content of its files, by default of all.

    Raises:
        TableMissing: a table of the query does not exist.
        SyncRefused: there is no such file.
    """
    if query := sync.source.query:
        return duckdb_inputs(duckdb.catalog, query)
    return file_inputs(sync, files or (local_files(sync) if are_local(sync) else ()))


def source_text(
    session: DuckDBSession, duckdb: DuckDB, sync: SyncDeclaration, files: Sequence[Path] = (), rejects: str = ""
) -> tuple[str, dict[str, InputVersion]]:
    """Return the query for the rows of a source, and the versions that its tables have, or the content of its files.

    Args:
        session: Runs the query.
        duckdb: The engine.
        sync: The sync.
        files: Some of its local files; by default all.
        rejects: Name of a temporary table that gets the lines of CSV which cannot be read as rows (see `with_rejected`);
            empty: such a line is an error.

    Raises:
        TableMissing: a table of the query does not exist.
        SyncRefused: there is no such file.
        RowsNotConverted: a file cannot be read.
    """
    # Before they are read, so that a newer version is not taken for one that was read.
    inputs = source_inputs(duckdb, sync, files)
    if query := sync.source.query:
        session.attach()
        return duckdb_text(query), inputs
    if are_local(sync):
        return _file_text(session.con, sync, files or local_files(sync), rejects), inputs
    session.attach()
    return _file_text(session.con, sync, (), rejects), inputs


def with_rejected(rows: str, rejects: str) -> str:
    """Return the query for rows and, with `MALFORMED`, the lines that could not be read as such.

    Args:
        rows: The query for the former.
        rejects: See `source_text`.
    """
    # A line may have several errors.
    lines = f"SELECT DISTINCT ON (scan_id, file_id, line) csv_line AS {MALFORMED} FROM {rejects}"
    return f"SELECT *, CAST(NULL AS VARCHAR) AS {MALFORMED} FROM ({rows}) UNION ALL BY NAME {lines}"


@contextmanager
def reading(sync: SyncDeclaration) -> Generator[None]:
    """In the block, errors of DuckDB are ours.

    Raises:
        RowsNotConverted: the source cannot be read.
    """
    import duckdb

    try:
        with translating(f"read the source of the sync {sync.name}"):
            yield
    except duckdb.Error as error:
        # What follows is advice for those who write SQL of DuckDB, or where in its code it failed.
        text = " ".join(re.split(r"Possible|\s0: <", str(error))[0].split())
        raise RowsNotConverted(f"The source of the sync {sync.name} cannot be read: {text}") from error


def typed_rows(relation: "DuckDBPyRelation") -> tuple[str, dict[str, str]]:
    """Return a query for the rows of a source in types that tables have, and these types by column, in Spark SQL's words.

    Raises:
        QueryMismatch: a column is of a type whose values no table holds.
    """
    found, others = dict[str, str](), list[str]()
    for name, held in zip(relation.columns, relation.types, strict=True):
        type_ = spark_type_of(held)
        if type_ is None and (type_ := _OTHERS.get(held.id)):
            # Compared with texts, a UUID would make UUIDs of them.
            others.append(f"CAST({identifier(name)} AS {sql_type(type_).sql}) AS {identifier(name)}")
        if type_ is None:
            raise QueryMismatch(f"The column {name} of the source is {held}, which no catalog table can hold: cast it.")
        found[name] = type_
    replaced = f" REPLACE ({', '.join(others)})" if others else ""
    return f"SELECT *{replaced} FROM ({relation.sql_query()})", found


def _csv_text(header: Sequence[str], files: Sequence[Path], read: str) -> str:
    """The query for the rows of files with one header.

    Guesses of DuckDB, which can be wrong about few lines, are not needed then.
    """
    paths = _listed([str(path.resolve()) for path in files])
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    return f"SELECT * FROM read_csv({paths}, {read}, auto_detect = false, columns = {{{columns}}})"


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


def _file_text(con: "DuckDBPyConnection", sync: SyncDeclaration, files: Sequence[Path], rejects: str) -> str:
    """The query for the rows of files."""
    listed = [str(path.resolve()) for path in files] or [sync.source.files]
    paths = _listed(listed)
    if sync.source.format == "parquet":
        if files:
            # Only to refuse what DuckDB would leave out.
            by_header(sync, files, blank_lines=False)
        return f"SELECT * FROM read_parquet({paths})"
    if sync.source.format == "csv":
        # A quoted empty text is no NULL.
        options = "header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false"
        if rejects:
            options += f", store_rejects = true, rejects_table = '{rejects}', rejects_scan = '{rejects}_scans'"
        if not files:
            return f"SELECT * FROM read_csv({paths}, {options}, all_varchar = true)"
        return " UNION ALL BY NAME ".join(
            _csv_text(header, group, options) for header, group in by_header(sync, files, blank_lines=False).items()
        )
    read = f"read_json({paths}, format = 'newline_delimited'"
    with reading(sync):
        # A field that some files do not have is NULL there, also where these are read alone.
        every = _listed([str(path.resolve()) for path in local_files(sync)]) if files else paths
        relation = con.sql(f"SELECT * FROM read_json({every}, format = 'newline_delimited', sample_size = -1)")
    types = zip(relation.columns, map(str, relation.types), strict=True)
    columns = ", ".join(f"{literal(name)}: '{'VARCHAR' if type_ in _TEXTS else type_}'" for name, type_ in types)
    return f"SELECT * FROM {read}, columns = {{{columns}}})"
