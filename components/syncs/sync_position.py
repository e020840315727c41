"""What a sync has read of its source before, from its destination alone: its commits record it."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

from components.syncs.dead_letters import accumulate, dead_letters
from components.syncs.source_rows import SourceRows, read_changed, read_source
from components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncMode
from resources.declarations import CHANGE_DATA_FEED
from resources.delta.commit_history import SAME_ROWS
from resources.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from resources.delta.table_log import TableLog
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import HistoryNotContinued, TableMissing
from resources.spark.spark_engine import Spark
from resources.sql.table_query import TableName

_COMMITS_READ = 200


@dataclass(frozen=True)
class SyncPosition:
    """What a sync has read before."""

    spark: Spark
    sync: SyncDeclaration

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self.sync.destination.full_name(self.spark.catalog.connection.name)

    @property
    def _query(self) -> str:
        """What the records of the sync have as their query."""
        return f"sync {self.sync.name} {self.sync.code_version}"

    def record(self, source: SourceRows, after: int) -> ComputedInputs:
        """Return the record for a commit.

        Args:
            source: What the pass has read.
            after: The version of the destination that it is computed against.
        """
        return ComputedInputs(self._query, after, source.inputs, uuid4().hex)

    def read(self, duckdb: DuckDB) -> SourceRows:
        """Return the source's rows; of a table as it is only those that the destination may lack, where they are known.

        In the modes insert and cdc these are the rows that it got since the last pass, in the mode merge those of the keys
        of changed rows.

        Raises:
            As `read_source`.
        """
        sync, spark, table = self.sync, self.spark, self.sync.source.table
        if table and sync.source.query and sync.mode is SyncMode.MERGE and self._has_feed(table):
            found = self._undisturbed()
            # What changed may not be known; a key may be no column, which is an error of the whole source, too.
            with suppress(FullRecompute, KeyError):
                if found:
                    last, version = found
                    return replace(read_changed(spark, sync, sync.source.query, last), destination_version=version)
        if table is None or sync.mode not in (SyncMode.INSERT, SyncMode.CDC):
            return read_source(spark, duckdb, sync, {})
        if sync.mode is SyncMode.CDC:
            last = self.last_record()
            with suppress(HistoryNotContinued):
                return read_source(spark, duckdb, sync, last.inputs if last else {})
            # Events that were applied before change nothing.
            return read_source(spark, duckdb, sync, {})
        full_name = table.full_name(spark.catalog.connection.name)
        table_id = spark.catalog.table(full_name).table_id or ""
        until = self._inserted_until(self.app_id({full_name: InputVersion(table_id, 0)}))
        return read_source(spark, duckdb, sync, {} if until is None else {full_name: InputVersion(table_id, until)})

    def _has_feed(self, table: TableName) -> bool:
        """Whether a table says which of its rows have changed: to find that out takes longer than to read all of them."""
        found = self.spark.catalog.table(table.full_name(self.spark.catalog.connection.name))
        return (found.properties or {}).get(CHANGE_DATA_FEED) == "true"

    def app_id(self, inputs: Mapping[str, InputVersion]) -> str:
        """Return the Delta application whose `txn` says up to which version of a source its rows were inserted."""
        return insert_app_id(self.sync, inputs)

    def is_current(self, source: SourceRows) -> bool:
        """Return whether a pass would change nothing: its source and the destination are as the last one left them."""
        if self.sync.mode is SyncMode.INSERT:
            until = self._inserted_until(self.app_id(source.inputs))
            return until is not None and until >= source.version
        found = self._undisturbed() if source.versioned else None
        return found is not None and found[0].inputs == source.inputs

    def _undisturbed(self) -> tuple[ComputedInputs, int] | None:
        """The record of the last commit of this sync, and the destination's version, at which all that it read is there.

        None if nobody knows that: others have changed rows since the version that the commit was computed against.
        """
        sync, last = self.sync, self.last_record()
        if last is None or last.query != self._query:
            return None
        if sync.row_errors is RowErrors.SKIP and not accumulate(sync) and dead_letters(self.spark, sync):
            # What did not fit may fit now.
            return None
        newest = -1
        for commit in self.spark.recent_commits(self.full_name, _COMMITS_READ):
            newest = max(newest, commit.version)
            if commit.version <= last.after:
                return last, newest
            own = (found := ComputedInputs.of(commit)) and found.id == last.id
            # Events that were applied before change nothing, whatever others have written.
            if not own and commit.operation not in SAME_ROWS and sync.mode is not SyncMode.CDC:
                return None
        return None

    def last_record(self) -> ComputedInputs | None:
        """Return the record of the last commit of this sync; None if none of the newest commits has one."""
        try:
            self.spark.catalog.table(self.full_name)
        except TableMissing:
            return None
        name = f"sync {self.sync.name} "
        for commit in self.spark.recent_commits(self.full_name, _COMMITS_READ):
            if commit.operation == "RESTORE":
                return None
            if (found := ComputedInputs.of(commit)) and found.query.startswith(name):
                return found
        return None

    def _inserted_until(self, app_id: str) -> int | None:
        """The version of the source up to which its rows were inserted; None if none were."""
        try:
            log = TableLog.opened(self.spark.catalog, self.full_name)
        except TableMissing:
            return None
        if log:
            return inserted_until(log, app_id)
        for commit in self.spark.history(self.full_name):
            if (record := ComputedInputs.of(commit)) and self.app_id(record.inputs) == app_id:
                return sum(version.version for version in record.inputs.values())
        return None


def insert_app_id(sync: SyncDeclaration, inputs: Mapping[str, InputVersion]) -> str:
    """Return the name under which a destination has up to which version of a source the rows were inserted."""
    ids = repr(sorted((name, found.table_id) for name, found in inputs.items()))
    # Where a source has no versions, each run inserts.
    ids += "" if all(found.version >= 0 for found in inputs.values()) else uuid4().hex
    return f"ratify:sync:{sync.name}:{hashlib.sha256(ids.encode()).hexdigest()[:32]}"


def insert_loads(app_id: str, after: int, until: int) -> list[str]:
    """Return the load ids of rows that DuckDB inserts: of the versions of a source after one, up to another.

    Only one such append can follow a version, because the ids of two that did would be the same.
    """
    return [f"{app_id}:after:{after}", f"{app_id}:until:{until}"]


def inserted_until(log: TableLog, app_id: str) -> int | None:
    """Return up to which version of a source the rows are in a table, whichever engine inserted them; None if none are.

    Args:
        log: The table's.
        app_id: See `insert_app_id`.
    """
    by_spark, prefix = log.txn_version(app_id), f"{app_id}:until:"
    found = [int(load.removeprefix(prefix)) for load in log.loaded_with(prefix)]
    return max([*found, *([] if by_spark is None else [by_spark - 1])], default=None)
