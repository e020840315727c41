"""The rows of a sync's source, as Spark reads them, at versions that a commit can record."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.query_engines import input_columns
from components.strategies.pass_scope import is_far_behind
from components.strategies.query_inputs import QueryInputs
from components.syncs.row_queries import Rows
from components.syncs.sync_declaration import SyncDeclaration
from resources.catalog.unity_catalog import UnityCatalog
from resources.delta.computed_inputs import ComputedInputs, InputVersion
from resources.delta.table_log import TableLog
from resources.duckdb.duckdb_engine import ALIAS, DuckDB
from resources.errors import HistoryNotContinued, QueryMismatch, SyncRefused
from resources.spark.spark_engine import Spark
from resources.sql import duckdb_sql
from resources.sql.spark_sql import identifier
from resources.sql.table_query import TableName, TableQuery

MALFORMED = "ratify_malformed"
"""Column with the text of a line of a file that has other fields than the file's columns."""
_NULL = "\x00ratify\x00"


@dataclass(frozen=True)
class SourceRows:
    """The rows of a source.

    Attributes:
        frame: The rows; not computed yet.
        inputs: The versions of the tables, or the content of the files, that they are read from, by name.
        types: Types of the columns by name, in Spark SQL's words, without `MALFORMED`.
        malformed: `MALFORMED` if the frame has it, otherwise empty.
        lineage: Columns of tables that each column is computed from, as `schema.table.column`.
        files_changed_at: When the newest of local files was last modified.
        carried: A column of the frame that is no column of the source, and comes with each row.
        destination_version: Where these are only rows that a destination may lack: that is so at this version of it.
        of_new_rows: Whether these are the rows of a table that were not inserted yet, in the mode insert.
        inserted_until: Then the version of the table up to which they were when these were read; None if none were.
    """

    frame: Rows
    inputs: Mapping[str, InputVersion]
    types: Mapping[str, str]
    malformed: str = ""
    lineage: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files_changed_at: dt.datetime | None = None
    carried: str = ""
    destination_version: int | None = None
    of_new_rows: bool = False
    inserted_until: int | None = None

    @property
    def version(self) -> int:
        """What grows with each version of the source; that of a file, which is known by its content, is 0."""
        return sum(found.version for found in self.inputs.values())

    def far_behind(self, catalog: UnityCatalog, since: int) -> bool:
        """Return whether it is time to record that the versions of its table after one were read, which gave no row."""
        ((full_name, read),) = self.inputs.items()
        return is_far_behind(TableLog.opened(catalog, full_name), since + 1, read.version)

    @property
    def versioned(self) -> bool:
        """Whether equal `inputs` mean equal rows."""
        return all(found.version >= 0 for found in self.inputs.values())


def read_source(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, since: Mapping[str, InputVersion]) -> SourceRows:
    """Return the rows of a sync's source.

    Args:
        spark: The session.
        duckdb: For a query in its SQL.
        sync: The sync.
        since: For a table as it is: only rows that it got after the version of this are read; empty: all rows.

    Raises:
        TableMissing: a table of the query does not exist.
        SyncRefused: there is no such file.
        HistoryNotContinued: rows since a version are asked for, and the table did not only get rows.
    """
    query = sync.source.query
    if query is None:
        return _files(spark, sync)
    if query.dialect == "duckdb":
        return _by_duckdb(spark, duckdb, query)
    inputs = QueryInputs(spark, query)
    columns = input_columns(spark.catalog, query)

    def relation(name: TableName) -> str:
        if since:
            inputs.relation(name, columns[name])
            return inputs.added(name, columns[name], since.get(inputs.full_name(name)))
        return inputs.relation(name, columns[name])

    try:
        text = query.resolved(relation)
    except HistoryNotContinued as error:
        raise insert_stopped(sync, error) from error
    lineage = query.lineage({str(name): names for name, names in columns.items()})
    return SourceRows(spark.query(text), inputs.versions, spark.types(text), lineage=lineage)


def insert_stopped(sync: SyncDeclaration, reason: Exception) -> HistoryNotContinued:
    """Return the error of a sync of the mode insert whose source did not only get rows."""
    return HistoryNotContinued(f"The sync {sync.name} inserts rows once, and cannot go on: {reason} Use the mode merge.")


def read_changed(spark: Spark, sync: SyncDeclaration, query: TableQuery, last: ComputedInputs) -> SourceRows:
    """Return the rows of a table whose keys have rows that changed since the versions of a record.

    Raises:
        FullRecompute: what has changed since cannot be known.
        TableMissing: the table does not exist.
    """
    (table,) = query.inputs
    inputs, columns = QueryInputs(spark, query), input_columns(spark.catalog, query)
    every = inputs.relation(table, columns[table])
    changed = inputs.create_views(last).get(table)
    given = {name.casefold(): name for name in columns[table]}
    mapped = {column.name.casefold(): column.source for column in sync.columns}
    keys = [given[mapped.get(key.casefold(), key).casefold()] for key in sync.keys]
    same = " AND ".join(f"s.{identifier(key)} <=> c.{identifier(key)}" for key in keys)
    text = (
        f"SELECT s.* FROM {every} AS s LEFT SEMI JOIN {changed} AS c ON {same}" if changed else f"{query.text} WHERE false"
    )
    lineage = query.lineage({str(name): names for name, names in columns.items()})
    return SourceRows(spark.query(text), inputs.versions, spark.types(text), lineage=lineage)


def changed_at(spark: Spark, source: SourceRows) -> dt.datetime:
    """Return the time of the newest version of a source's tables, or of its files; that of now where it is not known."""
    times = [source.files_changed_at] if source.files_changed_at else []
    for full_name, read in source.inputs.items():
        if read.table_id and read.version >= 0 and not source.files_changed_at:
            latest = spark.catalog.version(full_name)
            found = spark.recent_commits(full_name, latest - read.version + 1)
            times += [commit.timestamp for commit in found if commit.version == read.version]
    return max(times, default=dt.datetime.now(dt.UTC))


def duckdb_inputs(catalog: UnityCatalog, query: TableQuery) -> dict[str, InputVersion]:
    """Return the versions that the tables of a query in DuckDB's SQL have.

    Raises:
        QueryMismatch: one is of another catalog.
    """
    inputs = dict[str, InputVersion]()
    for name in query.inputs:
        if name.catalog not in ("", catalog.connection.name):
            raise QueryMismatch(f"{name} is of another catalog, which DuckDB does not read here: use Spark for this query.")
        full_name = name.full_name(catalog.connection.name)
        inputs[full_name] = InputVersion(catalog.table(full_name).table_id or "", catalog.version(full_name))
    return inputs


def duckdb_text(query: TableQuery) -> str:
    """Return the text of a query as a session of DuckDB runs it."""
    return query.resolved(lambda name: f"{ALIAS}.{duckdb_sql.identifier(name.schema)}.{duckdb_sql.identifier(name.table)}")


def _by_duckdb(spark: Spark, duckdb: DuckDB, query: TableQuery) -> SourceRows:
    # Before they are read, so that a newer version is not taken for one that was read.
    inputs = duckdb_inputs(spark.catalog, query)
    columns = input_columns(spark.catalog, query)
    with duckdb.session() as session:
        session.attach()
        rows = session.relation(duckdb_text(query)).to_arrow_table()
    frame = spark.session.createDataFrame(rows)
    lineage = query.lineage({str(name): names for name, names in columns.items()})
    return SourceRows(frame, inputs, dict(frame.dtypes), lineage=lineage)


def _files(spark: Spark, sync: SyncDeclaration) -> SourceRows:
    source, read = sync.source, spark.session.read
    local = "://" not in source.files
    if local:
        found = local_files(sync)
        paths, content = [str(path.resolve()) for path in found], content_of(found)
        newest = dt.datetime.fromtimestamp(max(path.stat().st_mtime for path in found), dt.UTC)
    else:
        # It is not known whether what is there was there before.
        paths, content, newest = [source.files], InputVersion("", -1), None
    if source.format == "csv":
        columns = dict.fromkeys(read.csv(paths, header=True).columns, "string")
        listed = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in (*columns, MALFORMED))
        # A quoted empty text is no NULL; only what is equal to `nullValue` is one, and what is not quoted becomes that.
        frame = read.csv(
            paths,
            schema=listed,
            header=True,
            columnNameOfCorruptRecord=MALFORMED,
            multiLine=True,
            escape='"',
            nullValue=_NULL,
            enforceSchema=False,
        )
        return SourceRows(frame, {f"file:{source.files}": content}, columns, MALFORMED, files_changed_at=newest)
    frame = read.parquet(*paths) if source.format == "parquet" else read.json(paths, columnNameOfCorruptRecord=MALFORMED)
    types = {name: type_ for name, type_ in frame.dtypes if name != MALFORMED}
    malformed = MALFORMED if MALFORMED in frame.columns else ""
    return SourceRows(frame, {f"file:{source.files}": content}, types, malformed, files_changed_at=newest)


def local_files(sync: SyncDeclaration) -> list[Path]:
    """Return the local files of a sync's source.

    Raises:
        SyncRefused: there are none.
    """
    pattern = Path(sync.source.files).expanduser()
    found = sorted(pattern.parent.glob(pattern.name))
    if not found:
        raise SyncRefused(f"No file is at {sync.source.files}, the source of the sync {sync.name}.")
    return found


def content_of(files: Sequence[Path]) -> InputVersion:
    """Return what files are known by: their content."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(repr(path.name).encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return InputVersion(digest.hexdigest(), 0)
