"""Spark, reached by Spark Connect or as a classic in-process session."""

import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
from pydantic import Field, PrivateAttr

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_author import authored_by, current_run_id
from ratify_lakehouse.delta.commit_history import FULL_REFRESH, Commit, commit_from_row
from ratify_lakehouse.delta.computed_inputs import COMPUTED, replaced_after
from ratify_lakehouse.delta.managed_creation import create_table, creates
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.spark.commit_conf import commit_conf
from ratify_lakehouse.engines.spark.merge_statements import TableChanges, changes_merge_sql, merge_sql
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, refuse_overtaken
from ratify_lakehouse.engines.spark.partition_guard import guarded, partition_types, refused_value
from ratify_lakehouse.engines.spark.spark_errors import translated, translating
from ratify_lakehouse.engines.spark.spark_sessions import SparkSessions, checkpointed
from ratify_lakehouse.engines.spark.unsent_query import unsent_query
from ratify_lakehouse.errors import CommitConflict, Overtaken, SparkUnavailable, TableMissing
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.spark_sql import at_version, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPENING = threading.Lock()


class Spark(dg.ConfigurableResource[Any]):
    """A Spark session, opened at first use and closed with the run.

    It wraps dagster-pyspark's `LazyPySparkResource`, whose `spark_config` would show a token in the UI and which never stops
    its session.
    """

    catalog: dg.ResourceDependency[UnityCatalog]
    remote: str = Field(
        default="",
        description="sc://host:port (Spark Connect) or a Spark master URL (classic session in this process); empty: "
        "SPARK_REMOTE or the running stack's Connect server",
    )
    conf: dict[str, str] = Field(default_factory=dict, description="More Spark configuration; no secrets")
    retry_seconds: int = Field(default=30, description="How long to wait for a server that does not answer")
    attempts: int = Field(default=5, description="How often a write is tried in all, if other commits conflict with it")

    _opened: Any = PrivateAttr(default=None)
    _listed: Any = PrivateAttr(default_factory=dict[str, int])

    @property
    def _sessions(self) -> SparkSessions:
        with _OPENING:
            if self._opened is None:
                remote = self.remote or Settings().spark_url()
                self._opened = SparkSessions(remote, self.catalog, self.conf, self.retry_seconds)
            return cast("SparkSessions", self._opened)

    @property
    def session(self) -> "SparkSession":
        """The session of this thread (see `SessionScope`).

        Raises:
            SparkUnavailable: the server cannot be reached.
        """
        return self._sessions.current()

    @property
    def listed_before(self) -> dict[str, int]:
        """See `note_missing`: versions of the list of erased subjects, by the tables that were missing."""
        return cast("dict[str, int]", self._listed)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the sessions, whatever happened in the run."""
        self.close()

    def close(self) -> None:
        """Close the sessions that were opened."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @contextmanager
    def isolated_session(self) -> Generator["SparkSession"]:
        """An isolated session, closed after the block, for a stream that sets `txn` options in the configuration.

        Over Connect, foreachBatch runs in the session that started the stream. If it were killed between setting and
        unsetting the options, the next write of that session would have them, too, and Delta might skip it.
        """
        with self._translating(), self._sessions.isolated() as session:
            yield session

    def sql(self, text: str, **frames: "DataFrame") -> "DataFrame":
        """Run a query in which `{name}` stands for the DataFrame given by that name."""
        with self._translating():
            return self._run(text, **frames)

    def query(self, text: str, **frames: "DataFrame") -> "DataFrame":
        """As `sql`, for a query alone. Over Spark Connect it is not sent, nor checked, before its rows are used."""
        with self._translating():
            return unsent_query(self.session, text, **frames)

    def types(self, text: str) -> dict[str, str]:
        """Return the types of a query's columns, by name."""
        with self._translating():
            return dict(unsent_query(self.session, text).dtypes)

    def _run(self, text: str, **frames: "DataFrame") -> "DataFrame":
        # PySpark types `args` but not the keyword arguments that stand for names in the text.
        run = cast("Callable[..., DataFrame]", self.session.sql)  # pyright: ignore[reportUnknownMemberType]
        return run(text, **frames)

    def full_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name, with the catalog's."""
        return declaration.full_name(self.catalog.connection.name)

    def sql_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name for a statement, quoted where the catalog's name needs it."""
        return table_name(self.full_name(declaration))

    def table(self, declaration: TableDeclaration) -> "DataFrame":
        """Return a table's rows, as of now."""
        with self._translating():
            return self.session.table(self.sql_name(declaration))

    def rows(self, frame: "DataFrame") -> list[dict[str, Any]]:
        """Run a query and return its rows."""
        with self._translating():
            return [row.asDict(recursive=True) for row in frame.collect()]

    def count(self, declaration: TableDeclaration, version: int | None = None) -> int:
        """Return the number of rows that a table has, or had at a version."""
        counted = self.query(f"SELECT count(*) AS n FROM {at_version(self.sql_name(declaration), version)}")
        return int(self.rows(counted)[0]["n"])

    def ensure_table(self, declaration: TableDeclaration) -> bool:
        """Create the table, and its schema, where they are missing; return whether it was created.

        A table of an earlier declaration gets the columns that it lacks.
        """
        catalog = self.catalog.connection.name
        try:
            existing = self.catalog.table(declaration.full_name(catalog))
        except TableMissing:
            self.catalog.ensure_schemas((declaration.layer,))
            return self._created(declaration)
        if adds := declaration.ddl_for_missing(catalog, [column.name or "" for column in existing.columns or []]):
            with self._translating():
                self._committed(declaration.full_name(catalog), lambda: self._run(adds).collect())
        return False

    def _created(self, declaration: TableDeclaration) -> bool:
        if creates(self.catalog, declaration):
            return create_table(self.catalog, declaration)
        try:
            with self._translating():
                self._run(declaration.ddl(self.catalog.connection.name)).collect()
        except Exception:
            # IF NOT EXISTS does not help if another process creates it at the same moment: Spark checks before.
            with suppress(TableMissing):
                self.catalog.table(self.full_name(declaration))
                return False
            raise
        return True

    def history(self, full_name: str, limit: int | None = None) -> list[Commit]:
        """Return a table's commits, newest first, from DESCRIBE HISTORY."""
        bound = f" LIMIT {limit}" if limit else ""
        return [commit_from_row(row) for row in self.rows(self.sql(f"DESCRIBE HISTORY {table_name(full_name)}{bound}"))]

    def recent_commits(self, full_name: str, limit: int) -> Iterator[Commit]:
        """Yield as many of a table's newest commits, newest first, from its log where this process can read that."""
        log = TableLog.opened(self.catalog, full_name)
        yield from islice(log.commits(), limit) if log else self.history(full_name, limit)

    def merge_to_match(
        self, declaration: TableDeclaration, read: Callable[[], "DataFrame"], after: int | None = None
    ) -> WriteResult:
        """Make a table equal to a DataFrame by one MERGE on the table's keys.

        Rows that differ are updated, new ones inserted, missing ones deleted. If nothing differs, Delta commits no version.
        After a conflict the whole read-transform-commit runs again, because the input may have changed too; hence `read` is
        a function. For rows that are computed already, `after` is the version that the table had before their inputs were
        read, or -1: the commit records it, and where it follows one that was computed after that version, this is an error.

        Raises:
            Overtaken: another writer computed the table, or restored it, after that version: compute the rows again.
            CommitConflict: other writers won every attempt.
            AppendFailed: a row has a value that no partition can have.
        """
        full_name = declaration.full_name(self.catalog.connection.name)
        merge = merge_sql(declaration, full_name, "{rows}")
        record = "" if after is None else replaced_after(after, declaration.computed_from)

        def once() -> Commit | None:
            before = self.catalog.version(full_name) if after is None else after
            if after is not None:
                refuse_overtaken(self, full_name, after)
            with self._translating():
                rows = self.partitionable(declaration, read())
                refuse_erased(self, full_name, before)
                commit = self._committed(full_name, lambda: self._run(merge, rows=rows).collect(), record=record)
            # A commit that came before the MERGE had begun, but after the look. A `txn` would refuse the MERGE, but it
            # is a version also where nothing differs.
            until = commit.version if commit else None
            if after is None:
                refuse_erased(self, full_name, before, until)
            else:
                refuse_overtaken(self, full_name, after, until)
            return commit

        return self.write_result(declaration, retried(once, self.attempts, unless=() if after is None else (Overtaken,)))

    def merge_changes(
        self, declaration: TableDeclaration, changes: TableChanges, record: str, after: int, within: str = "true"
    ) -> WriteResult:
        """Apply changed rows to a table by one MERGE on its keys.

        Args:
            declaration: The table.
            changes: The rows.
            record: For the commit's user metadata.
            after: The version that the changes are against. A Delta `txn` lets only one such MERGE follow it.
            within: A condition that holds for all of these keys in the table, `target`: other files need not be read.

        Raises:
            CommitConflict: another writer committed first; compute the changes again.
        """
        full_name, only_new = self.full_name(declaration), changes.only_new
        merge = changes_merge_sql(declaration, full_name, "{rows}", within, only_new=only_new)
        return self.merge_following(declaration, merge, changes.rows, record, after, where="ratify_present")

    def partitionable(self, declaration: TableDeclaration, rows: "DataFrame", where: str = "true") -> "DataFrame":
        """Return rows to write, those that fulfil a condition, in which a value that no partition can have is an error."""
        full_name, written = self.full_name(declaration), {name.casefold() for name in declaration.column_names}
        found = partition_types(self.catalog.load_table(full_name))
        keys = [key for key in declaration.keys if key not in declaration.personal]
        return guarded(rows, full_name, {n: type_ for n, type_ in found.items() if n.casefold() in written}, keys, where)

    def merge_following(
        self,
        declaration: TableDeclaration,
        merge: str,
        rows: "DataFrame",
        record: str,
        after: int,
        purpose: str = "ratify",
        app_id: str = COMPUTED,
        where: str = "true",
    ) -> WriteResult:
        """As `merge_changes`, by any MERGE or INSERT of `{rows}` that changes the table.

        `purpose`: see `FULL_REFRESH`. `app_id`: of the `txn`, with the version `after` + 1; those of one exclude each other.
        `where`: the condition of the rows that are written.
        """
        full_name, txn = self.full_name(declaration), (app_id, after + 1)
        if app_id == COMPUTED:
            refuse_overtaken(self, full_name, after)
        with self._translating():
            checked = self.partitionable(declaration, rows, where)
            commit = self._committed(full_name, lambda: self._run(merge, rows=checked).collect(), purpose, record, txn)
        if commit is None:
            raise CommitConflict(f"Another writer committed to {full_name} as {app_id} after {after} first.")
        return self.write_result(declaration, commit)

    def write_result(self, declaration: TableDeclaration, commit: Commit | None) -> WriteResult:
        """Return what the table is after a write that made this commit, or none."""
        log = TableLog.opened(self.catalog, self.full_name(declaration))
        version = log.version if log else self.catalog.version(self.full_name(declaration))
        rows = log.rows() if log else None
        return WriteResult(commit, version, self.count(declaration, version) if rows is None else rows)

    def commit(
        self, full_name: str, write: Callable[[], Any], record: str = "", after: int | None = None, purpose: str = "ratify"
    ) -> Commit | None:
        """Run a write to an existing table, and return its commit; None if it committed nothing.

        After a conflict with another commit it runs again, unless it was planned for the version `after`, which it has to
        follow. The commit's user metadata has `record`, and begins with `purpose`.

        Raises:
            CommitConflict: other writers won every attempt, or one has committed since that version.
        """

        def once() -> Commit | None:
            if after is not None and (version := self.catalog.version(full_name)) != after:
                raise CommitConflict(f"{full_name} was at version {after}, and is at {version} by now: look again.")
            with self._translating():
                return self._committed(full_name, write, purpose, record)

        return retried(once, self.attempts, unless=(Overtaken,)) if after is None else once()

    def truncate(self, full_name: str) -> Commit | None:
        """Delete all rows of a table before a full refresh, in a commit marked as such; its earlier versions remain.

        Raises:
            CommitConflict: other writers won every attempt.
        """
        delete = f"DELETE FROM {table_name(full_name)}"
        return self.commit(full_name, lambda: self._run(delete).collect(), purpose=FULL_REFRESH)

    def computed(self, frame: "DataFrame", *, now: bool = True) -> "DataFrame":
        """Compute a DataFrame once, and return its rows for any number of uses, none of which plans its query again.

        Not `now`: in the job of their first use. They are in the executors' memory, or on their disks, until the result is
        no longer referenced. If an executor is lost, what uses them fails.
        """
        with self._translating():
            return checkpointed(frame, now=now)

    def _committed(
        self,
        full_name: str,
        write: Callable[[], object],
        purpose: str = "ratify",
        record: str = "",
        txn: tuple[str, int] | None = None,
    ) -> Commit | None:
        """Run a write with unique user metadata, which begins with its purpose, and find the commit that has it.

        `txn`: Delta skips the write if one of this app id with this version, or a later one, was committed.
        """
        mark = f"{purpose}:{uuid.uuid4()} {authored_by(self.catalog.principal(), current_run_id(), record)}"
        before = self.catalog.version(full_name)
        with commit_conf(self.session, mark, txn):
            write()
        new_versions = self.catalog.version(full_name) - before
        if not new_versions:
            return None
        return next((c for c in self.recent_commits(full_name, new_versions) if c.user_metadata == mark), None)

    def translated(self, error: Exception) -> Exception:
        """Return our error for one of PySpark's or gRPC's, or that error itself if nothing better is known."""
        ours = refused_value(str(error)) or translated(error, self.remote or Settings().spark_url())
        if isinstance(ours, SparkUnavailable):
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.drop()
        return ours

    def _translating(self) -> AbstractContextManager[None]:
        return translating(self.translated)
