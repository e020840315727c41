"""One pass of a sync of the mode insert, by DuckDB: no Spark is needed, unless it has to create the destination.

The rows are appended in one commit whose load ids say which versions of the source they are of, so that the catalog accepts
them once.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.expectations.rule_dialects import DUCKDB
from components.query_engines import input_columns
from components.syncs.accepted_rows import RowConversion
from components.syncs.compared_rows import SyncCounts, sample_sql
from components.syncs.duckdb_source import column_types, reading, source_inputs, source_text
from components.syncs.pass_retries import retried
from components.syncs.row_queries import Rows, placed
from components.syncs.source_rows import SourceRows
from components.syncs.sync_declaration import SyncDeclaration
from components.syncs.sync_destination import SyncDestination, fitting_destination, missing_destination, new_destination
from components.syncs.sync_pass import SyncResult
from components.syncs.sync_position import insert_app_id, insert_loads, inserted_until
from resources.declarations import TableDeclaration
from resources.delta.computed_inputs import InputVersion
from resources.delta.table_log import TableLog
from resources.duckdb.duckdb_engine import DuckDB, DuckDBSession
from resources.duckdb.feed_reading import read_added
from resources.errors import AlreadyLoaded, ChangesNotRecorded, CommitConflict, HistoryNotContinued, TableMissing
from resources.spark.spark_engine import Spark
from resources.sql.duckdb_sql import identifier
from resources.sql.table_query import TableName

_READINGS = 5


@dataclass(frozen=True)
class DuckDBRowQueries:
    """See `RowQueries`: rows are the text of a query in DuckDB's SQL."""

    session: DuckDBSession
    catalog_name: str

    def full_name(self, declaration: TableDeclaration) -> str:
        """See `RowQueries`."""
        return declaration.full_name(self.catalog_name)

    def query(self, text: str, **relations: Rows) -> Rows:
        """See `RowQueries`."""
        return placed(text, relations)

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """See `RowQueries`."""
        return self.session.records(frame)

    def computed(self, frame: Rows) -> Rows:
        """See `RowQueries`."""
        self.session.rows(f"CREATE OR REPLACE TEMP TABLE ratify_sync_rows AS {frame}")
        return "SELECT * FROM ratify_sync_rows"


@dataclass(frozen=True)
class _Prepared:
    """What a pass would insert.

    Attributes:
        source: What it has read.
        since: Up to which version of the source the rows are in the destination; -1: none are.
        destination: Where they go.
        rows: The query for them; None if all are there.
        counts: Of these rows.
    """

    source: SourceRows
    since: int
    destination: SyncDestination
    rows: Rows | None = None
    counts: SyncCounts = field(default_factory=SyncCounts)


class DuckDBPass:
    """A pass of a sync over DuckDB."""

    def __init__(self, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> None:
        self._spark, self._duckdb, self._sync, self._catalog = spark, duckdb, sync, duckdb.catalog

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self._sync.destination.full_name(self._catalog.connection.name)

    def run(self) -> SyncResult:
        """Insert the rows that the destination does not have.

        Raises:
            RowsNotConverted, SyncRefused, TableMissing, HistoryNotContinued, CommitConflict: as `SyncPass.run`.
            CommitOutcomeUnknown: it may have been ratified; run it again, which inserts nothing twice.
        """
        return retried(self._once)

    def plan(self) -> tuple[SyncCounts, Sequence[Mapping[str, Any]]]:
        """Return what a run would do: the rows, by what is done with them, and some of them. Nothing is written.

        Raises:
            As `run`.
        """
        with self._duckdb.session() as session:
            prepared = self._prepare(session)
            return prepared.counts, self._sample(session, prepared)

    def _once(self) -> SyncResult:
        began = time.monotonic()
        with self._duckdb.session() as session:
            prepared = self._prepare(session)
            destination, source = prepared.destination, prepared.source
            created = not destination.exists and self._spark.ensure_table(destination.table)
            sample, version = self._sample(session, prepared), None
            if prepared.counts.inserted:
                version = self._append(session, prepared)
            log = session.log(destination.table)
            snapshot = log.refresh()
            table = TableLog(log, snapshot)
            return SyncResult(
                counts=prepared.counts,
                version=snapshot.version if version is None else version,
                commit=None if version is None else next(each for each in table.commits() if each.version == version),
                created=created,
                rows=session.count(destination.table) if (rows := table.rows()) is None else rows,
                inputs=source.inputs,
                seconds=time.monotonic() - began,
                sample=sample,
                lineage={column.name: source.lineage.get(column.source, ()) for column in destination.columns},
                types={column.name: column.type for column in destination.table.columns},
                unchanged=prepared.rows is None,
            )

    def _prepare(self, session: DuckDBSession) -> _Prepared:
        sync, queries = self._sync, DuckDBRowQueries(session, self._catalog.connection.name)
        source, since = self._read(session, queries)
        destination = self._destination(session, source.types)
        if 0 <= source.version <= since:
            return _Prepared(source, since, destination)
        accepted = RowConversion(queries, sync, source, destination, DUCKDB).accepted()
        return _Prepared(source, since, destination, accepted.rows, SyncCounts(accepted.read, inserted=accepted.read))

    def _read(self, session: DuckDBSession, queries: DuckDBRowQueries) -> tuple[SourceRows, int]:
        """The rows of the source that are not in the destination, and up to which version the others are of; -1: all are.

        Raises:
            As `run`.
        """
        table = self._sync.source.table
        if table and (since := self._inserted(inputs := self._inputs(table))) is not None:
            return self._added(session, inputs, since), since
        for _ in range(_READINGS):
            with reading(self._sync):
                text, inputs = source_text(session, self._duckdb, self._sync)
                rows = queries.computed(text)
                again = source_inputs(self._duckdb, self._sync)
            if inputs == again:
                break
        else:
            raise CommitConflict(f"The source of the sync {self._sync.name} gets new versions sooner than it can be read.")
        since = self._inserted(inputs)
        return self._source(session, rows, inputs), -1 if since is None else since

    def _added(self, session: DuckDBSession, table: Mapping[str, InputVersion], since: int) -> SourceRows:
        ((full_name, found),) = table.items()
        log = self._duckdb.log(full_name)
        snapshot = log.refresh()
        if rewrite := TableLog(log, snapshot).first_rewrite(since, snapshot.version):
            raise HistoryNotContinued(
                f"{rewrite.operation}, version {rewrite.version} of {full_name}, did not only add rows, and rows of earlier "
                "versions were inserted already. The mode insert cannot follow that; use merge."
            )
        try:
            relation = read_added(session, log, snapshot, since)
        except ChangesNotRecorded as error:
            raise HistoryNotContinued(f"The rows of {full_name} since version {since} cannot be read: {error}") from error
        inputs = {full_name: InputVersion(found.table_id, snapshot.version)}
        return self._source(session, relation.sql_query(), inputs)

    def _source(self, session: DuckDBSession, text: str, inputs: Mapping[str, InputVersion]) -> SourceRows:
        query = self._sync.source.query
        known = input_columns(self._catalog, query) if query else {}
        lineage = query.lineage({str(name): names for name, names in known.items()}) if query else {}
        return SourceRows(text, inputs, column_types(session.con.sql(text)), lineage=lineage)

    def _inputs(self, table: TableName) -> dict[str, InputVersion]:
        full_name = table.full_name(self._catalog.connection.name)
        return {full_name: InputVersion(self._catalog.table(full_name).table_id or "", 0)}

    def _inserted(self, inputs: Mapping[str, InputVersion]) -> int | None:
        try:
            log = TableLog.opened(self._catalog, self.full_name)
        except TableMissing:
            return None
        return inserted_until(log, insert_app_id(self._sync, inputs)) if log else None

    def _destination(self, session: DuckDBSession, given: Mapping[str, str]) -> SyncDestination:
        try:
            found = self._catalog.table(self.full_name)
        except TableMissing:
            if not self._sync.create_if_missing:
                raise missing_destination(self._sync, self.full_name) from None
            return new_destination(self._sync, given)
        fields, version = session.columns(self._sync.table), self._catalog.version(self.full_name)
        return fitting_destination(self._sync, given, self.full_name, fields, found.properties or {}, version)

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
        loads = insert_loads(insert_app_id(self._sync, source.inputs), prepared.since, source.version)
        rows = f"SELECT {', '.join(listed)} FROM ({prepared.rows})"
        try:
            return session.append(declaration, rows, loads).version
        except AlreadyLoaded as error:
            raise CommitConflict(f"Another run of the sync {self._sync.name} has inserted these rows: {error}") from error

    def _sample(self, session: DuckDBSession, prepared: _Prepared) -> list[dict[str, Any]]:
        if prepared.rows is None:
            return []
        sampled = sample_sql(prepared.destination.table, keyed=False, sql=DUCKDB)
        return session.records(placed(sampled, {"changes": prepared.rows}))
