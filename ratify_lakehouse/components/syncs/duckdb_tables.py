"""The source and the tables of a sync, by DuckDB (see `SyncTables`): no Spark is needed, unless it has to create a table.

In the strategy append the rows are appended in one commit whose load ids say which versions of the source they are of, so
that the catalog accepts them once. In the others the commit follows the version that the rows were compared with, and
records the versions of the source, as that of Spark does.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, RuleDialect
from ratify_lakehouse.components.query_engines import input_columns
from ratify_lakehouse.components.strategies.added_rows import added_range
from ratify_lakehouse.components.syncs.duckdb_source import (
    reading,
    source_inputs,
    source_text,
    typed_rows,
    with_rejected,
)
from ratify_lakehouse.components.syncs.row_queries import Rows, placed
from ratify_lakehouse.components.syncs.source_files import are_local, file_inputs, filled_files, new_files
from ratify_lakehouse.components.syncs.source_rows import MALFORMED, SourceRows, insert_stopped
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination, described_destination
from ratify_lakehouse.components.syncs.sync_position import (
    SyncPosition,
    insert_app_id,
    insert_loads,
    insertion_of,
    pass_load,
)
from ratify_lakehouse.components.syncs.sync_state import tables_written, unsettled
from ratify_lakehouse.components.syncs.sync_tables import PreparedChanges, SyncTables
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.table_log import LogCommits, TableLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.feed_reading import read_added
from ratify_lakehouse.engines.duckdb.live_rows import LiveRows
from ratify_lakehouse.engines.duckdb.row_merge import merge_changes, overwrite, table_rows, wrote
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import (
    AlreadyLoaded,
    ChangesNotRecorded,
    CommitConflict,
    HistoryNotContinued,
    LogUnreadable,
    ReadBeforeErasure,
    TableMissing,
)
from ratify_lakehouse.sql.duckdb_sql import identifier, no_rows
from ratify_lakehouse.sql.table_query import TableName

_READINGS = 5


class DuckDBTables(SyncTables):
    """The source and the tables of one attempt; rows are the text of a query. What is computed is there until it ends."""

    sql: RuleDialect = DUCKDB

    def __init__(
        self, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, session: DuckDBSession, opened: ExitStack
    ) -> None:
        self._spark, self._duckdb, self._sync, self._session, self._opened = spark, duckdb, sync, session, opened
        self._numbers = count()
        self._compared: LiveRows | None = None
        for full_name in tables_written(sync, self.catalog.connection.name):
            session.fences.note(full_name, duckdb.log(full_name))

    @classmethod
    @contextmanager
    def opened(cls, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> "Generator[DuckDBTables]":
        """Yield what an attempt needs; Spark is opened only to create a table that the catalog's client cannot create."""
        with duckdb.session() as session, ExitStack() as opened:
            yield cls(spark, duckdb, sync, session, opened)

    @property
    def catalog(self) -> UnityCatalog:
        """See `SyncTables`."""
        return self._duckdb.catalog

    @property
    def position(self) -> SyncPosition:
        """See `SyncTables`."""
        commits = LogCommits(self._duckdb.log)
        return SyncPosition(self.catalog, commits, self._sync, commits.opened, partial(unsettled, self, self._sync))

    def full_name(self, declaration: TableDeclaration) -> str:
        """See `RowQueries`."""
        return declaration.full_name(self.catalog.connection.name)

    def query(self, text: str, **relations: Rows) -> str:
        """See `RowQueries`."""
        return placed(text, relations)

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """See `RowQueries`."""
        return self._session.records(frame)

    def computed(self, frame: Rows) -> str:
        """See `RowQueries`."""
        return self._named("TABLE", frame)

    def shown_rows(self, declaration: TableDeclaration, frame: Rows) -> list[dict[str, Any]]:
        """See `SyncTables`."""
        return self._session.records(frame)

    def _named(self, kind: str, text: str) -> str:
        """Store rows, or a view of them, and return the query for these."""
        name = f"ratify_sync_rows_{next(self._numbers)}"
        self._session.rows(f"CREATE TEMP {kind} {name} AS {text}")
        return f"SELECT * FROM {name}"

    def source(self, *, at_once: bool = False) -> SourceRows:
        """See `SyncTables`."""
        if self._sync.strategy is SyncStrategy.APPEND:
            return self._rows_to_insert(at_once=at_once)
        # Before the source is read: another pass, which may have read a newer one, commits after this version.
        self._open_compared()
        if self._sync.strategy is SyncStrategy.CDC and (table := self._sync.source.table):
            return self._new_events(table)
        return self._whole_source()

    def _new_events(self, table: TableName) -> SourceRows:
        inputs, last = self._inputs(table), self.position.last_record()
        ((full_name, found),) = inputs.items()
        read = last.inputs.get(full_name) if last else None
        if read and read.table_id == found.table_id:
            # Events that were applied before change nothing, so that all can be read where these are not known.
            try:
                return self._added(inputs, read.version)
            except HistoryNotContinued:
                pass
        return self._whole_source()

    def _rows_to_insert(self, *, at_once: bool) -> SourceRows:
        sync, inserted = self._sync, self.position.insertions()
        if table := sync.source.table:
            inputs = self._inputs(table)
            until = inserted.of(inputs)
            source = self._whole_source() if until is None else self._added(inputs, until)
            return replace(source, of_new_rows=True, inserted_until=until)
        if sync.source.query is None and are_local(sync):
            new = new_files(sync, inserted.of)
            # The dead letters of a pass are those of one file, as the next pass can find them again.
            read = list(new)[: None if at_once or sync.row_errors is RowErrors.FAIL else 1]
            source = self._whole_source(read or filled_files(sync)[-1:])
            if any(file_inputs(sync, [path]) != new[path] for path in read):
                raise CommitConflict(f"A file of {sync.source.files} was written while it was read.")
            inputs = new[read[0]] if len(read) == 1 else source.inputs
            return replace(source, inputs=inputs, files=[new[path] for path in read], more_files=len(new) > len(read) > 0)
        source = self._whole_source()
        return replace(source, inserted_until=inserted.of(source.inputs))

    def _whole_source(self, files: Sequence[Path] = ()) -> SourceRows:
        """All rows of the source, at one version of each of its tables; of its files, or of some of them.

        Raises:
            As `source`.
            CommitConflict: it gets new versions too soon.
        """
        for _ in range(_READINGS):
            with reading(self._sync):
                rejects = f"ratify_rejected_{next(self._numbers)}" if self._rejects else ""
                text, inputs = source_text(self._session, self._duckdb, self._sync, files, rejects)
                rows = self.computed(text)
                rows = self.computed(with_rejected(rows, rejects)) if rejects else rows
                again = source_inputs(self._duckdb, self._sync, files)
            if inputs == again:
                return self._typed(rows, inputs)
        raise CommitConflict(f"The source of the sync {self._sync.name} gets new versions faster than it can be read.")

    def _added(self, table: Mapping[str, InputVersion], since: int) -> SourceRows:
        ((full_name, found),) = table.items()
        log = self._duckdb.log(full_name)
        snapshot = log.refresh()
        rewrites = TableLog(log, snapshot).rewrites(since, snapshot.version)
        try:
            added = added_range(
                full_name, since, snapshot.version, rewrites, lambda: acknowledged(self._session, found.table_id)
            )
            relation = read_added(self._session, log, snapshot, since, added.deletions)
        except (ChangesNotRecorded, HistoryNotContinued, LogUnreadable) as error:
            raise insert_stopped(self._sync, error) from error
        inputs = {full_name: InputVersion(found.table_id, snapshot.version)}
        return self._typed(relation.sql_query(), inputs)

    def _typed(self, text: str, inputs: Mapping[str, InputVersion]) -> SourceRows:
        query = self._sync.source.query
        known = input_columns(self.catalog, query) if query else {}
        lineage = query.lineage({str(name): names for name, names in known.items()}) if query else {}
        rows, types = typed_rows(self._session.relation(text))
        malformed = MALFORMED if types.pop(MALFORMED, "") else ""
        return SourceRows(rows, inputs, types, malformed, lineage=lineage)

    @property
    def _rejects(self) -> bool:
        """Tells whether a line of a file that cannot be read as a row is a dead letter."""
        return self._sync.source.format == "csv" and self._sync.row_errors is RowErrors.SKIP

    def _inputs(self, table: TableName) -> dict[str, InputVersion]:
        full_name = table.full_name(self.catalog.connection.name)
        return {full_name: InputVersion(self.catalog.table(full_name).table_id or "", 0)}

    def _open_compared(self) -> None:
        """Open the rows of the destination that the changes are computed against, if it exists."""
        with suppress(TableMissing):
            self.catalog.table(self.full_name(self._sync.table))
            self._compared = self._opened.enter_context(table_rows(self._session, self._sync.table))

    def destination(self, given: Mapping[str, str]) -> SyncDestination:
        """See `SyncTables`."""
        return described_destination(self._sync, given, self.catalog, self._described)

    def _described(self, full_name: str) -> tuple[Sequence[Column], int]:
        if self._compared is None and self._sync.strategy is not SyncStrategy.APPEND:
            self._open_compared()
        version = self._compared.snapshot.version if self._compared else self.catalog.version(full_name)
        return self._session.columns(self._sync.table), version

    def stored(self, destination: SyncDestination) -> str:
        """See `SyncTables`."""
        if self._compared is None:
            return f"({_nothing(destination.table)})"
        return f"({self._named('VIEW', self._compared.select())})"

    def rows_now(self, declaration: TableDeclaration) -> str:
        """See `SyncTables`."""
        try:
            self.catalog.table(self.full_name(declaration))
        except TableMissing:
            return _nothing(declaration)
        return self._named("VIEW", self._opened.enter_context(table_rows(self._session, declaration)).select())

    def ensure_table(self, declaration: TableDeclaration) -> bool:
        """See `SyncTables`."""
        return self._spark.ensure_table(replace(declaration, writer=Engine.DUCKDB))

    def update(self, declaration: TableDeclaration, changes: str, **relations: Rows) -> None:
        """See `SyncTables`."""

        def once() -> None:
            with table_rows(self._session, declaration) as stored:
                found = self.computed(self.query(changes, stored=stored.select(), **relations))
                if self.rows(f"SELECT 1 FROM ({found}) LIMIT 1"):
                    merge_changes(self._session, declaration, stored, found, "")

        retried(once, self._spark.attempts, unless=(ReadBeforeErasure,))

    def write(self, prepared: PreparedChanges) -> WriteResult:
        """See `SyncTables`."""
        table, session = prepared.destination.table, self._session
        version = None if prepared.changes is None else self._written(prepared, prepared.changes)
        log = session.log(table)
        snapshot = log.refresh()
        rows = session.count(table) if (known := TableLog(log, snapshot).rows()) is None else known
        if version is None:
            return WriteResult(None, snapshot.version, rows)
        return wrote(session, table, version, rows, {})

    def _written(self, prepared: PreparedChanges, changes: str) -> int:
        """Make the commit, and return its version."""
        table, session, sync = prepared.destination.table, self._session, self._sync
        if sync.strategy is SyncStrategy.APPEND:
            return self._append(prepared, changes)
        with ExitStack() as opened:
            stored = self._compared or opened.enter_context(table_rows(session, table))
            if self._compared is None and stored.rows:
                raise CommitConflict(f"Another writer has created {self.full_name(table)}.")
            record = prepared.record.to_json()
            if sync.strategy is SyncStrategy.FULL:
                return overwrite(session, table, stored, changes, prepared.counts.inserted, record)
            return merge_changes(session, table, stored, changes, record)

    def _append(self, prepared: PreparedChanges, rows: str) -> int:
        """Append the rows in one commit, and return its version.

        Raises:
            CommitConflict: another run of the sync has inserted them.
        """
        destination, sync = prepared.destination, self._sync
        written, listed = {column.name for column in destination.columns}, list[str]()
        columns = self._session.columns(destination.table)
        for column in columns:
            name = identifier(column.name)
            listed.append(name if column.name in written else f"NULL AS {name}")
        declaration = replace(destination.table, columns=columns)
        try:
            select = f"SELECT {', '.join(listed)} FROM ({rows})"
            return self._session.append(declaration, select, self._loads(prepared)).version
        except AlreadyLoaded as error:
            raise CommitConflict(f"Another run of the sync {sync.name} has inserted these rows: {error}") from error

    def _loads(self, prepared: PreparedChanges) -> list[str]:
        """The load ids of the rows to append."""
        source, record, sync = prepared.source, prepared.record, self._sync
        of_pass = [pass_load(sync, record.id)] if prepared.accepted and prepared.accepted.failures else []
        if len(source.files) > 1:
            app_ids = [insert_app_id(sync, inputs) for inputs in source.files]
            return [load for app_id in app_ids for load in insert_loads(app_id, -1, source.version)]
        app_id, until = insertion_of(sync, record)
        # A source without versions has rows for each run.
        return [*insert_loads(app_id, source.since if source.versioned else until, until), *of_pass]


def _nothing(declaration: TableDeclaration) -> str:
    return no_rows({name: sql_type(type_).sql for name, type_ in declaration.column_types.items()})
