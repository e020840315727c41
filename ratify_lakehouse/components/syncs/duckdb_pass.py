"""One pass of a sync by DuckDB: no Spark is needed, unless it has to create the destination.

In the strategy append the rows are appended in one commit whose load ids say which versions of the source they are of, so
that the catalog accepts them once. In the others the source is read as a whole and compared with the destination; the commit
follows the version that it was compared with, and records the versions of the source, as that of Spark does.
"""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.query_engines import input_columns
from ratify_lakehouse.components.strategies.added_rows import added_range
from ratify_lakehouse.components.syncs.accepted_rows import RowConversion
from ratify_lakehouse.components.syncs.compared_rows import RowComparison, SyncCounts, sample_sql
from ratify_lakehouse.components.syncs.duckdb_queries import DuckDBRowQueries
from ratify_lakehouse.components.syncs.duckdb_source import reading, source_inputs, source_text, typed_rows
from ratify_lakehouse.components.syncs.row_queries import Rows, placed
from ratify_lakehouse.components.syncs.source_files import Inserted, are_local, file_inputs, filled_files, new_files
from ratify_lakehouse.components.syncs.source_rows import SourceRows, inputs_by_now, insert_stopped
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import (
    SyncDestination,
    fitting_destination,
    missing_destination,
    new_destination,
)
from ratify_lakehouse.components.syncs.sync_pass import SyncResult, followed
from ratify_lakehouse.components.syncs.sync_position import Insertions, SyncPosition, insert_app_id, insert_loads
from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.table_log import LogCommits, TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.feed_reading import read_added
from ratify_lakehouse.engines.duckdb.live_rows import LiveRows
from ratify_lakehouse.engines.duckdb.row_merge import merge_changes, overwrite, table_rows
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import (
    AlreadyLoaded,
    ChangesNotRecorded,
    CommitConflict,
    HistoryNotContinued,
    LogUnreadable,
    TableMissing,
)
from ratify_lakehouse.sql.duckdb_sql import identifier, no_rows
from ratify_lakehouse.sql.table_query import TableName

_READINGS = 5


@dataclass(frozen=True)
class _Prepared:
    """What a pass would do.

    Attributes:
        source: What it has read.
        destination: Where the rows go.
        since: In the strategy append: up to which version of the source the rows are there; -1: none are.
        changes: The query for the rows to insert, or for the changes of `merge_changes`; None if there is nothing to do.
        counts: The rows, by what is done with them.
        stored: In the other strategies: the rows that the changes are computed against; None if the destination is new.
        unchanged: Whether source and destination are as the last pass left them.
    """

    source: SourceRows
    destination: SyncDestination
    since: int = -1
    changes: Rows | None = None
    counts: SyncCounts = field(default_factory=SyncCounts)
    stored: LiveRows | None = None
    unchanged: bool = False


class DuckDBPass:
    """A pass of a sync over DuckDB."""

    def __init__(self, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> None:
        self._spark, self._duckdb, self._sync, self._catalog = spark, duckdb, sync, duckdb.catalog

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self._sync.destination.full_name(self._catalog.connection.name)

    def run(self) -> SyncResult:
        """Write what differs.

        Raises:
            RowsNotConverted, SyncRefused, TableMissing, HistoryNotContinued, CommitConflict: as `SyncPass.run`.
            UnsafeTable: the destination is one that DuckDB does not write to.
            CommitOutcomeUnknown: it may have been ratified; run it again, which writes nothing twice.
        """
        return followed(self._once, self._sync, partial(inputs_by_now, self._catalog, self._sync))

    def plan(self) -> tuple[SyncCounts, Sequence[Mapping[str, Any]]]:
        """Return what a run would do: the rows, by what is done with them, and some of them. Nothing is written.

        Raises:
            As `run`.
        """
        with self._duckdb.session() as session, self._prepared(session) as prepared:
            return prepared.counts, self._sample(session, prepared)

    def _once(self) -> SyncResult:
        began = time.monotonic()
        with self._duckdb.session() as session, self._prepared(session) as prepared:
            destination, source = prepared.destination, prepared.source
            created = not destination.exists and self._spark.ensure_table(destination.table)
            sample = self._sample(session, prepared)
            version = None if prepared.changes is None else self._write(session, prepared)
            log = session.log(destination.table)
            snapshot = log.refresh()
            return SyncResult(
                counts=prepared.counts,
                version=snapshot.version if version is None else version,
                commit=None if version is None else commit_from_actions(version, log.actions(version)),
                created=created,
                rows=session.count(destination.table) if (rows := TableLog(log, snapshot).rows()) is None else rows,
                inputs=source.inputs,
                seconds=time.monotonic() - began,
                sample=sample,
                lineage={column.name: source.lineage.get(column.source, ()) for column in destination.columns},
                types={column.name: column.type for column in destination.table.columns},
                unchanged=prepared.unchanged,
            )

    @contextmanager
    def _prepared(self, session: DuckDBSession) -> Generator[_Prepared]:
        sync, queries = self._sync, DuckDBRowQueries(session, self._catalog.connection.name)
        session.fences.note(self.full_name, session.log(sync.table))
        with ExitStack() as stack:
            if sync.strategy is SyncStrategy.APPEND:
                yield self._inserting(session, queries)
                return
            # Before the source is read: another pass, which may have read a newer one, commits after this version.
            stored = stack.enter_context(table_rows(session, sync.table)) if self._exists() else None
            source = self._whole_source(session, queries)
            destination = self._destination(session, source.types, stored)
            if self._position.is_current(source):
                yield _Prepared(source, destination, unchanged=True)
                return
            accepted = RowConversion(queries, sync, source, destination, DUCKDB).accepted()
            new = {column.name: sql_type(column.type).sql for column in destination.table.columns}
            read = f"({stored.select() if stored else no_rows(new)})"
            counts, changes = RowComparison(queries, sync, destination, accepted, DUCKDB, read).compared()
            yield _Prepared(source, destination, changes=changes, counts=counts, stored=stored)

    def _inserting(self, session: DuckDBSession, queries: DuckDBRowQueries) -> _Prepared:
        table, inserted = self._sync.source.table, self._inserted
        since = -1
        if table and (found := inserted(inputs := self._inputs(table))) is not None:
            since = found
            source = self._added(session, inputs, since)
        elif self._sync.source.query is None and are_local(self._sync):
            new = new_files(self._sync, inserted)
            source = self._whole_source(session, queries, list(new) or filled_files(self._sync)[-1:])
            source, since = replace(source, files=list(new.values())), -1 if new else source.version
            if any(file_inputs(self._sync, [path]) != known for path, known in new.items()):
                raise CommitConflict(f"A file of {self._sync.source.files} was written while it was read.")
        else:
            source = self._whole_source(session, queries)
            # A run that has inserted meanwhile has rows of a table that are among these: its append and this one exclude
            # each other. Rows of a query are those of one state, which is inserted or not.
            if not table and (found := inserted(source.inputs)) is not None:
                since = found
        destination = self._destination(session, source.types, None)
        if 0 <= source.version <= since:
            return _Prepared(source, destination, since, unchanged=True)
        accepted = RowConversion(queries, self._sync, source, destination, DUCKDB).accepted()
        counts = SyncCounts(accepted.read, inserted=accepted.read)
        some = accepted.read or (table and since >= 0 and source.far_behind(self._catalog, since))
        return _Prepared(source, destination, since, accepted.rows if some else None, counts)

    def _whole_source(self, session: DuckDBSession, queries: DuckDBRowQueries, files: Sequence[Path] = ()) -> SourceRows:
        """All rows of the source, at one version of each of its tables; of its files, or of some of them.

        Raises:
            As `run`.
        """
        for _ in range(_READINGS):
            with reading(self._sync):
                text, inputs = source_text(session, self._duckdb, self._sync, files)
                rows = queries.computed(text)
                again = source_inputs(self._duckdb, self._sync, files)
            if inputs == again:
                return self._source(session, rows, inputs)
        raise CommitConflict(f"The source of the sync {self._sync.name} gets new versions sooner than it can be read.")

    def _added(self, session: DuckDBSession, table: Mapping[str, InputVersion], since: int) -> SourceRows:
        ((full_name, found),) = table.items()
        log = self._duckdb.log(full_name)
        snapshot = log.refresh()
        rewrites = TableLog(log, snapshot).rewrites(since, snapshot.version)
        try:
            added = added_range(full_name, since, snapshot.version, rewrites, lambda: acknowledged(session, found.table_id))
            relation = read_added(session, log, snapshot, since, added.deletions)
        except (ChangesNotRecorded, HistoryNotContinued, LogUnreadable) as error:
            raise insert_stopped(self._sync, error) from error
        inputs = {full_name: InputVersion(found.table_id, snapshot.version)}
        return self._source(session, relation.sql_query(), inputs)

    def _source(self, session: DuckDBSession, text: str, inputs: Mapping[str, InputVersion]) -> SourceRows:
        query = self._sync.source.query
        known = input_columns(self._catalog, query) if query else {}
        lineage = query.lineage({str(name): names for name, names in known.items()}) if query else {}
        rows, types = typed_rows(session.relation(text))
        return SourceRows(rows, inputs, types, lineage=lineage)

    def _inputs(self, table: TableName) -> dict[str, InputVersion]:
        full_name = table.full_name(self._catalog.connection.name)
        return {full_name: InputVersion(self._catalog.table(full_name).table_id or "", 0)}

    @property
    def _inserted(self) -> Inserted:
        try:
            log = TableLog.read(self._catalog, self.full_name)
        except TableMissing:
            log = None
        insertions = Insertions(self._sync, self.full_name, log, ())
        return lambda inputs, not_before=0: insertions.until(insert_app_id(self._sync, inputs), not_before)

    @property
    def _position(self) -> SyncPosition:
        return SyncPosition(self._catalog, LogCommits(self._duckdb.log), self._sync)

    def _exists(self) -> bool:
        try:
            self._catalog.table(self.full_name)
        except TableMissing:
            return False
        return True

    def _destination(self, session: DuckDBSession, given: Mapping[str, str], stored: LiveRows | None) -> SyncDestination:
        try:
            found = self._catalog.table(self.full_name)
        except TableMissing:
            if not self._sync.create_if_missing:
                raise missing_destination(self._sync, self.full_name) from None
            return new_destination(self._sync, given, self._catalog)
        fields = session.columns(self._sync.table)
        version = stored.snapshot.version if stored else self._catalog.version(self.full_name)
        properties = found.properties or {}
        return fitting_destination(self._sync, given, self._catalog, self.full_name, fields, properties, version)

    def _write(self, session: DuckDBSession, prepared: _Prepared) -> int:
        """Make the commit, and return its version.

        Raises:
            CommitConflict: another writer was first.
        """
        destination, source = prepared.destination, prepared.source
        if self._sync.strategy is SyncStrategy.APPEND:
            return self._append(session, prepared)
        with ExitStack() as stack:
            stored = prepared.stored or stack.enter_context(table_rows(session, destination.table))
            if prepared.stored is None and stored.rows:
                raise CommitConflict(f"Another writer has created {self.full_name}.")
            record = self._position.record(source, stored.snapshot.version).to_json()
            if self._sync.strategy is SyncStrategy.FULL:
                return overwrite(session, destination.table, stored, str(prepared.changes), prepared.counts.inserted, record)
            return merge_changes(session, destination.table, stored, str(prepared.changes), record)

    def _append(self, session: DuckDBSession, prepared: _Prepared) -> int:
        """Append the rows in one commit, and return its version.

        Raises:
            CommitConflict: another run of the sync has inserted them.
        """
        destination, source = prepared.destination, prepared.source
        written, listed = {column.name for column in destination.columns}, list[str]()
        columns = session.columns(destination.table)
        for column in columns:
            name = identifier(column.name)
            listed.append(name if column.name in written else f"NULL AS {name}")
        declaration = replace(destination.table, columns=columns)
        app_ids = [insert_app_id(self._sync, inputs) for inputs in source.files or [source.inputs]]
        loads = [load for app_id in app_ids for load in insert_loads(app_id, prepared.since, source.version)]
        rows = f"SELECT {', '.join(listed)} FROM ({prepared.changes})"
        try:
            return session.append(declaration, rows, loads).version
        except AlreadyLoaded as error:
            raise CommitConflict(f"Another run of the sync {self._sync.name} has inserted these rows: {error}") from error

    def _sample(self, session: DuckDBSession, prepared: _Prepared) -> list[dict[str, Any]]:
        if prepared.changes is None:
            return []
        sampled = sample_sql(prepared.destination.table, keyed=self._sync.strategy.keyed, sql=DUCKDB)
        return session.records(placed(sampled, {"changes": prepared.changes}))
