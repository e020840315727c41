"""The rows of a sync's source, as Spark reads them, at versions that a commit can record."""

import datetime as dt
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.query_engines import input_columns
from ratify_lakehouse.components.strategies.pass_scope import is_far_behind
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.syncs.converted_rows import ConvertedColumn, converted
from ratify_lakehouse.components.syncs.row_queries import Rows
from ratify_lakehouse.components.syncs.source_files import are_local, by_header, file_inputs, local_files
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from ratify_lakehouse.delta.table_log import Commits, TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued, QueryMismatch
from ratify_lakehouse.sql.spark_sql import identifier
from ratify_lakehouse.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        carried: A column of the frame that is not a column of the source, and comes with each row.
        destination_version: Where these are only rows that a destination may lack: that is so at this version of it.
        of_new_rows: Whether these are the rows of a table that were not inserted yet, in the strategy append.
        inserted_until: In that strategy the version up to which the source's rows were inserted when these were read; None
            if none were, or it was not looked up.
        files: What each of the files is inserted by which were not inserted yet, in the strategy append.
        more_files: Whether other files wait to be inserted.
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
    files: Sequence[Mapping[str, InputVersion]] = ()
    more_files: bool = False

    @property
    def letter_types(self) -> dict[str, str]:
        """The types of what a dead letter has of a row: a line that could not be read must not fit later, as if it could."""
        return {**self.types, **({self.malformed: "string"} if self.malformed else {})}

    @property
    def since(self) -> int:
        """The version after which its rows were not inserted yet; -1 if none were."""
        return -1 if self.inserted_until is None else self.inserted_until

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
        return read_files(spark, sync)
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
    """Return the error of a sync of the strategy append whose source did not only get rows."""
    return HistoryNotContinued(
        f"The sync {sync.name} inserts rows once, and cannot continue: {reason} Use the strategy merge."
    )


def read_changed(
    spark: Spark, query: TableQuery, last: ComputedInputs, keys_of: Callable[[Mapping[str, str]], Sequence[ConvertedColumn]]
) -> SourceRows:
    """Return the rows of a table whose keys have rows that changed since the versions of a record.

    Keys are those of the destination: several of the source may be one there.

    Args:
        spark: The session.
        query: Of the table as it is.
        last: The record.
        keys_of: Returns the key columns, given the types of the table's columns by name.

    Raises:
        FullRecompute: what has changed since cannot be known.
        TableMissing: the table does not exist.
    """
    (table,) = query.inputs
    inputs, columns = QueryInputs(spark, query), input_columns(spark.catalog, query)
    every = inputs.relation(table, columns[table])
    changed = inputs.create_views(last).get(table)
    types = spark.types(f"SELECT * FROM {every}")
    keys = keys_of(types)
    same = " AND ".join(f"{converted(SPARK, key, 's')} <=> {converted(SPARK, key, 'c')}" for key in keys)
    text = (
        f"SELECT s.* FROM {every} AS s LEFT SEMI JOIN {changed} AS c ON {same}"
        if changed
        else f"SELECT * FROM {every} WHERE false"
    )
    lineage = query.lineage({str(name): names for name, names in columns.items()})
    return SourceRows(spark.query(text), inputs.versions, types, lineage=lineage)


def last_changed_at(commits: Commits, source: SourceRows) -> dt.datetime:
    """Return the time of the newest version of a source's tables, or of its files; that of now where it is not known."""
    if source.files_changed_at:
        return source.files_changed_at
    times = list[dt.datetime]()
    for full_name, read in source.inputs.items():
        if read.table_id and read.version >= 0:
            known = commits.recent_commits(full_name, EVERY_COMMIT)
            found = next((commit for commit in known if commit.version <= read.version), None)
            times += [found.timestamp] if found and found.version == read.version else []
    return max(times, default=dt.datetime.now(dt.UTC))


def inputs_by_now(
    catalog: UnityCatalog, sync: SyncDeclaration, inputs: Mapping[str, InputVersion]
) -> Mapping[str, InputVersion]:
    """Return the versions that tables have now which a pass has read, or the content of the files of its source.

    Raises:
        TableMissing: one of them is not there any more.
        SyncRefused: there is no such file any more.
    """
    if sync.source.query is None:
        return file_inputs(sync, local_files(sync) if are_local(sync) else ())
    return {
        name: replace(read, table_id=catalog.table(name).table_id or "", version=catalog.version(name))
        if read.version >= 0
        else read
        for name, read in inputs.items()
    }


def duckdb_inputs(catalog: UnityCatalog, query: TableQuery) -> dict[str, InputVersion]:
    """Return the versions that the tables of a query in DuckDB's SQL have.

    Raises:
        QueryMismatch: one is of another catalog.
    """
    inputs = dict[str, InputVersion]()
    for name in query.inputs:
        if name.catalog not in ("", catalog.connection.name):
            raise QueryMismatch(
                f"{name} belongs to another catalog, which DuckDB cannot read here: use Spark for this query."
            )
        full_name = name.full_name(catalog.connection.name)
        inputs[full_name] = InputVersion(catalog.table(full_name).table_id or "", catalog.version(full_name))
    return inputs


def duckdb_text(query: TableQuery) -> str:
    """Return the text of a query as a session of DuckDB runs it."""
    return query.resolved(lambda name: attached(f"{name.schema}.{name.table}"))


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


def read_files(spark: Spark, sync: SyncDeclaration, files: Sequence[Path] = ()) -> SourceRows:
    """Return the rows of the files of a sync's source, or of some of them.

    Raises:
        SyncRefused: there are none, or they have other columns.
    """
    source, read, newest = sync.source, spark.session.read, None
    groups = [[source.files]]
    if are_local(sync):
        files = files or local_files(sync)
        newest = dt.datetime.fromtimestamp(max(path.stat().st_mtime for path in files), dt.UTC)
        by_columns = [files] if source.format == "json" else by_header(sync, files, blank_lines=True).values()
        groups = [[str(path.resolve()) for path in group] for group in by_columns]
    inputs, malformed = file_inputs(sync, files), MALFORMED
    if source.format == "csv":
        frame = reduce(lambda one, other: one.unionByName(other), (_csv_rows(spark, paths) for paths in groups))
    elif source.format == "parquet":
        frame, malformed = read.parquet(*itertools.chain.from_iterable(groups)), ""
    else:
        # A field that some files do not have is NULL there, also where these are read alone.
        every = [str(path.resolve()) for path in local_files(sync)] if are_local(sync) else groups[0]
        schema = read.json(every, columnNameOfCorruptRecord=MALFORMED).schema
        frame = read.json(groups[0], schema=schema, columnNameOfCorruptRecord=MALFORMED)
        malformed = MALFORMED if MALFORMED in frame.columns else ""
    types = {name: type_ for name, type_ in frame.dtypes if name != malformed}
    return SourceRows(frame, inputs, types, malformed, files_changed_at=newest)


def _csv_rows(spark: Spark, paths: list[str]) -> "DataFrame":
    """The rows of files with one header."""
    columns = spark.session.read.csv(paths, header=True).columns
    listed = ", ".join(f"{identifier(name)} STRING" for name in (*columns, MALFORMED))
    # A quoted empty text is no NULL; only what is equal to `nullValue` is one, and what is not quoted becomes that.
    return spark.session.read.csv(
        paths,
        schema=listed,
        header=True,
        columnNameOfCorruptRecord=MALFORMED,
        multiLine=True,
        escape='"',
        nullValue=_NULL,
        enforceSchema=False,
    )
