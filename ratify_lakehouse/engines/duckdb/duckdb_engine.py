"""DuckDB: reads through the attached catalog, and appends that are safe beside other writers.

DuckDB writes the rows as Parquet; the commit is ours (`delta_log`). DuckDB's own commit fails whenever another writer has
committed meanwhile, and deletes its data file if the reply is lost, even if the catalog accepted it. An append has a Delta
`txn` for each load, with compare-and-set, so a load is in the table once however often it is tried. Pending appends from all
writers on one machine share one commit (`group_commit`).
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import dagster as dg
from pydantic import Field, PrivateAttr

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.commit_actions import Committed, NothingToCommit
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.erasure_fence import ERASED, NotedFences
from ratify_lakehouse.delta.load_ids import loaded_ids
from ratify_lakehouse.delta.schema_change import columns_added, columns_of
from ratify_lakehouse.engines.duckdb import group_commit
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.extension_loading import LOADED_AS_THEY_ARE, load_extensions
from ratify_lakehouse.engines.duckdb.group_commit import CommittedGroup, Complete, Ratified, Staged, completed
from ratify_lakehouse.engines.duckdb.parquet_files import write_parquet
from ratify_lakehouse.engines.duckdb.pending_append import CommittedByOther, PendingAppend
from ratify_lakehouse.engines.duckdb.readable_tables import ALIAS, ReadableTables, attached
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.process_memory import keep_imported
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

logger = logging.getLogger(__name__)

_CHECKPOINT_EVERY = 20


class DuckDB(dg.ConfigurableResource[Any]):
    """An in-memory DuckDB, opened at first use, closed with the run."""

    catalog: dg.ResourceDependency[UnityCatalog]
    memory_limit: str = Field(default="", description="For example 2GB; empty: DuckDB's own 80 % of the machine")
    threads: int = Field(default=0, description="0: one for each core")
    attempts: int = Field(default=50, description="How often a commit is proposed in all, if other writers commit first")
    commit_patience: int = Field(default=600, description="Seconds to wait for the answer to a commit before giving up")

    _con: Any = PrivateAttr(default=None)
    _attached_for: Any = PrivateAttr(default=None)
    _logs: dict[str, DeltaLog] = PrivateAttr(default_factory=dict[str, DeltaLog])

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the engine, whatever happened in the run."""
        self.close()

    def close(self) -> None:
        """Close the engine if it was opened."""
        con, self._con = self._con, None
        if con is not None:
            con.close()

    @contextmanager
    def session(self) -> Generator["DuckDBSession"]:
        """Yield a session. The catalog is attached when rows are first read; local temporary tables end with the session.

        Raises:
            CatalogUnavailable, CatalogDenied: the catalog does not answer, or refuses the token.
        """
        session = self.opened()
        try:
            yield session
        finally:
            session.close()

    def opened(self) -> "DuckDBSession":
        """Return a session, which its owner closes; errors as those of `session`."""
        return DuckDBSession(self._engine().cursor(), self)

    @cached_property
    def home(self) -> Path:
        """Folder of the state, read from the environment once: that takes longer than many a query."""
        return Settings().home

    @cached_property
    def region(self) -> str:
        """Region of S3, likewise."""
        return Settings().ratify_s3_region or "us-east-1"

    def log(self, full_name: str) -> DeltaLog:
        """Return the log of a table; the engine caches what was read of it."""
        return self._logs.setdefault(full_name, DeltaLog(self.catalog, full_name, self.attempts, self.commit_patience))

    def note_attached(self, session: "DuckDBSession | None") -> None:
        """Note which session has attached the catalog last: it is attached, and detached, for all sessions of the engine."""
        self._attached_for = session

    @property
    def attached_for(self) -> "DuckDBSession | None":
        """The session that has attached the catalog last; None if rows are to be read from it as it is now."""
        return cast("DuckDBSession | None", self._attached_for)

    def _engine(self) -> "DuckDBPyConnection":
        if self._con is None:
            self._con = self._open()
        return cast("DuckDBPyConnection", self._con)

    def _open(self) -> "DuckDBPyConnection":
        import duckdb

        self.catalog.default_schema()
        self.catalog.principal()
        keep_imported()
        config: dict[str, str | bool | int | float | list[str]] = {
            # Landed and staged files are read once: a cache of them would only use memory.
            "enable_external_file_cache": False,
            **LOADED_AS_THEY_ARE,
            "temp_directory": str(self.home / "duckdb" / "temp"),
        }
        if self.memory_limit:
            config["memory_limit"] = self.memory_limit
        if self.threads:
            config["threads"] = self.threads
        con = duckdb.connect(config=config)
        con.execute("SET GLOBAL TimeZone = 'UTC'")
        load_extensions(con)
        return con


class DuckDBSession:
    """One unit of work of an engine."""

    def __init__(self, con: "DuckDBPyConnection", engine: DuckDB) -> None:
        self.con = con
        self.home = engine.home
        self.engine = engine
        self._catalog = engine.catalog
        self.readable = ReadableTables(engine.catalog)
        self.fences = NotedFences(lambda: engine.log(f"{engine.catalog.connection.name}.{ERASED}"))
        self._token = ""

    def attach(self) -> None:
        """Attach the catalog, again if it is attached: the only way to see other writers' commits."""
        to = self._catalog.connection
        schema = literal(self._catalog.default_schema())
        self._detach()
        self.readable.forget()
        # Each time, because an OAuth token lasts an hour, and DuckDB keeps the one that it attached with.
        self._token = self._catalog.bearer_token()
        self.con.execute(
            f"CREATE OR REPLACE SECRET (TYPE unity_catalog, TOKEN {literal(self._token)}, "
            f"ENDPOINT {literal(to.host + '/')}, AWS_REGION {literal(self.engine.region)})"
        )
        with translating(f"attach the catalog {to.name}"):
            self.con.execute(f"ATTACH {literal(to.name)} AS {ALIAS} (TYPE unity_catalog, DEFAULT_SCHEMA {schema})")
        self.engine.note_attached(self)

    def close(self) -> None:
        """End the session."""
        import duckdb

        with suppress(duckdb.Error):
            self.con.execute("ROLLBACK")
        if self.engine.attached_for in (None, self):
            self._detach()
            self.engine.note_attached(None)
        self.con.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Tables of the catalog are `uc.<schema>.<table>`."""
        with self._reading(sql):
            return self.con.execute(sql, list(parameters)).fetchall()

    def records(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows by column name."""
        with self._reading(sql):
            cursor = self.con.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def relation(self, sql: str) -> "DuckDBPyRelation":
        """Return the rows of a query, which reads tables of the catalog only after `attach`; they are not computed yet."""
        self.readable.check(sql)
        return self.con.sql(sql)

    def count(self, declaration: TableDeclaration) -> int:
        """Return the number of rows in a table."""
        return int(self.rows(f"SELECT count(*) FROM {attached(declaration.table_name)}")[0][0])

    def loaded(self, declaration: TableDeclaration, loads: Sequence[str]) -> set[str]:
        """Return the loads among these whose rows are in the table, according to its log."""
        return loaded_ids(self.log(declaration).refresh().txn_versions(loads))

    def log(self, declaration: TableDeclaration) -> DeltaLog:
        """Return the log of a table."""
        return self.engine.log(self._full_name(declaration))

    def columns(self, declaration: TableDeclaration) -> tuple[Column, ...]:
        """Return the current columns of a table, in table order."""
        return columns_of(self.log(declaration).refresh())

    def add_columns(self, declaration: TableDeclaration, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Add the columns that a table lacks, after its own, and return all of its columns.

        Raises:
            UnsafeTable: it has one of them, with another type.
            As `append`.
        """
        log = self.log(declaration)
        with suppress(NothingToCommit):
            log.commit(lambda snapshot: columns_added(snapshot, columns))
        return self.columns(declaration)

    def append(self, declaration: TableDeclaration, select: str, loads: Sequence[str]) -> Ratified:
        """Append the rows of a query to a table in one version, exactly once for each load.

        Args:
            declaration: The table. The query returns its columns in table order.
            select: The query. It reads tables of the catalog only after `attach`, or after `rows` has read some.
            loads: Ids of what is loaded, at least one; each becomes a Delta `txn` app id.

        Raises:
            AlreadyLoaded: the table holds one of the loads; nothing was committed.
            UnsafeTable: the table differs from its declaration, or has an unsupported feature.
            AppendFailed: the rows do not fit the table.
            CommitConflict, CatalogBusy, CatalogUnavailable: after all attempts; nothing was committed.
            CommitOutcomeUnknown: it may have been ratified; repeat the same append, its load ids prevent duplicates.
        """
        if not loads:
            raise ValueError("append needs at least one load id: without it a lost reply could double the rows")
        staged = self.stage(declaration, select, loads, self._spool(declaration))
        try:
            return self.commit_staged(declaration, staged)
        finally:
            staged.parquet.unlink(missing_ok=True)

    def stage(self, declaration: TableDeclaration, select: str, loads: Sequence[str], folder: Path) -> Staged:
        """Write the rows of a query over local tables to a Parquet file in `folder`, for `commit_staged`."""
        names = ", ".join(identifier(column.name) for column in declaration.columns)
        typed = ", ".join(
            f"CAST({identifier(column.name)} AS {sql_type(column.type).sql}) AS {identifier(column.name)}"
            for column in declaration.columns
        )
        parquet = folder / f"{uuid4().hex}.parquet"
        self.readable.check(select)
        with translating("write rows"):
            written = write_parquet(self.con, f"SELECT {typed} FROM ({select}) AS given({names})", parquet)
        fence = self.fences.of(self._full_name(declaration))
        return Staged(parquet, written.rows, written.size, tuple(loads), declaration.column_types, written.stats, (), fence)

    def commit_staged(self, declaration: TableDeclaration, staged: Staged, complete: Complete = None) -> Ratified:
        """Append staged rows to a table, in one version with what other writers of this machine have staged for it.

        Args:
            declaration: The table.
            staged: The rows.
            complete: What follows a commit, given its version: the writer that commits for others does it for them too,
                also for those on other machines, which do not wait for it. If it fails, the rows are committed all the same.

        Raises:
            As `append`.
        """
        committed = list[int]()

        def append(group: Sequence[Staged]) -> CommittedGroup:
            made = self._append_group(declaration, group, complete)
            committed.append(made.version)
            return made

        queue, log = group_commit.CommitQueue(self._spool(declaration)), self.log(declaration)
        ratified = queue.commit(staged, append, group_commit.yield_windows(log))
        # Only by the writer that committed the version, after the others have their answers.
        self.after_commits(declaration, committed)
        return ratified

    def after_commits(self, declaration: TableDeclaration, versions: Sequence[int]) -> None:
        """Do what follows commits of this writer to a table."""
        # The attached catalog shows the table as it was before.
        self.engine.note_attached(None)
        if any(version % _CHECKPOINT_EVERY == 0 for version in versions):
            self.checkpoint(declaration.table_name)

    def _append_group(self, declaration: TableDeclaration, group: Sequence[Staged], complete: Complete) -> CommittedGroup:
        log = self.log(declaration)
        pending = PendingAppend(self.con, log, group)
        try:
            committed, by_other = log.commit(pending.proposal), False
        except CommittedByOther as other:
            committed, by_other = Committed(other.version, pending.attempts), True
        except Exception as error:
            if unknown := pending.failed(error):
                raise unknown from error
            raise
        pending.clear()
        # What follows a commit is done once, by its writer: others would only get in its way.
        return CommittedGroup(committed.version, committed.attempts, by_other or completed(complete, committed.version))

    def checkpoint(self, table: str) -> bool:
        """Write a checkpoint of a table (schema.table), after which all read its log; return whether that worked."""
        import duckdb

        try:
            self.attach()
            self.con.execute(f"CALL unity_catalog_checkpoint_table({literal(f'{ALIAS}.{table}')})")
        except (duckdb.Error, RatifyError) as error:
            # The rows are committed, and a later commit writes a checkpoint.
            logger.warning("no checkpoint of %s: %s", table, error)
            return False
        return True

    def _full_name(self, declaration: TableDeclaration) -> str:
        return declaration.full_name(self._catalog.connection.name)

    def _spool(self, declaration: TableDeclaration) -> Path:
        folder = group_commit.CommitQueue.folder_of(self.home, self._full_name(declaration), self._catalog.connection)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def _reading(self, sql: str) -> Generator[None]:
        if self.engine.attached_for is not self or self._token != self._catalog.bearer_token():
            self.attach()
        self.readable.check(sql)
        with translating("run a query"):
            yield

    def _detach(self) -> None:
        import duckdb

        # DETACH may fail on its internal catalogs and has still taken effect.
        with suppress(duckdb.Error):
            self.con.execute(f"DETACH DATABASE IF EXISTS {ALIAS}")
