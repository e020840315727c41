"""The inputs of a query that a table is made of, as DuckDB reads them.

They are read as they are, and a pass begins again if one has got a new version before all was read: so the rows are those of
the versions that are noted. What has changed in them comes from their logs and data files.
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.query_engines import read_by_duckdb
from ratify_lakehouse.components.strategies.input_versions import InputVersions
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.feed_reading import read_added, read_net_changes
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import (
    ChangesNotRecorded,
    CommitConflict,
    HistoryNotContinued,
    LogUnreadable,
    StorageUnsupported,
    UnsafeTable,
)
from ratify_lakehouse.sql.table_query import TableName, TableQuery

_UNREADABLE = (ChangesNotRecorded, LogUnreadable, StorageUnsupported, UnsafeTable)


class AttachedInputs(InputVersions):
    """The inputs of a query, as a session of DuckDB has them attached."""

    def __init__(self, session: DuckDBSession, query: TableQuery) -> None:
        super().__init__(session.engine.catalog, query, DUCKDB)
        self._session = session

    def relation(self, name: TableName, columns: Sequence[str]) -> str:
        """See `InputVersions`.

        Raises:
            QueryMismatch: the table is of another catalog.
        """
        self.find(name, columns)
        return read_by_duckdb(self.catalog, name)

    def every(self, name: TableName) -> str:
        """See `InputVersions`."""
        return attached(f"{name.schema}.{name.table}")

    def log(self, name: TableName) -> TableLog:
        """See `InputVersions`."""
        found = self._session.engine.log(self.full_name(name))
        return TableLog(found, found.refresh())

    def rewrites(self, name: TableName, since: int) -> Iterable[Commit]:
        """See `InputVersions`."""
        return self.log(name).rewrites(since, self._versions[name].version)

    def acknowledged(self, name: TableName) -> Collection[int]:
        """See `InputVersions`."""
        return acknowledged(self._session, self._versions[name].table_id)

    def added(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        """See `InputVersions`.

        Raises:
            CommitConflict: it has got a new version since its version was noted.
            As there.
        """
        found = self.added_range(name, since)
        if not found.adds:
            return f"(SELECT {self.listed(name)} FROM {self.every(name)} WHERE false)"
        log = self._session.engine.log(self.full_name(name))
        snapshot = log.refresh()
        if snapshot.version != found.until:
            raise _moved(self.full_name(name))
        try:
            rows = read_added(self._session, log, snapshot, found.since, found.deletions).sql_query()
        except _UNREADABLE as error:
            what = f"the rows that {name} got since version {found.since} cannot be read: {error}"
            raise HistoryNotContinued(what) from error
        return f"(SELECT {self.listed(name)} FROM ({rows}))"

    def create_changed_view(self, view: str, name: TableName, last: ComputedInputs) -> bool:
        """See `InputVersions`."""
        full_name = self.full_name(name)
        now, since = self._versions[name], last.inputs[full_name]
        if now == since:
            return False
        try:
            changed = read_net_changes(self._session, self._session.engine.log(full_name), since.version, now.version)
        except _UNREADABLE as error:
            raise FullRecompute(f"what changed in {name} since version {since.version} cannot be read: {error}") from error
        self._session.con.execute(f"CREATE OR REPLACE TEMP TABLE {view} AS SELECT {self.listed(name)} FROM ({changed})")
        return True

    @contextmanager
    def read_unmoved(self) -> Generator[None]:
        """Check that what is read in the block, and was until now, is of the versions that are noted.

        Raises:
            CommitConflict: an input has a newer one, or was dropped and created again.
            TableMissing: one does not exist any more.
        """
        import duckdb

        try:
            yield
        except duckdb.Error:
            # The versions that are noted are those of the tables that were there when the pass began.
            self.check_replaced()
            raise
        self.check_unmoved()

    def check_unmoved(self) -> None:
        """Check that the inputs have the versions that are noted: what was read until now is of these.

        Raises:
            CommitConflict: one has another.
            TableMissing: one does not exist any more.
        """
        self.check_replaced()
        for full_name, read in self.versions.items():
            if read.version >= 0 and self.catalog.version(full_name) != read.version:
                raise _moved(full_name)


def _moved(full_name: str) -> CommitConflict:
    return CommitConflict(f"{full_name} got a new version while it was read.")
