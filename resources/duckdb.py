"""DuckDB with the catalog attached: reads, and appends that are safe beside other writers.

The writer protocol, in one place. A DuckDB commit fails whenever anyone else committed meanwhile, the attached catalog that
met a conflict never recovers, and an attached catalog never refreshes by itself. So each append attaches afresh, takes the
catalog's version on both sides of pinning its snapshot (a commit that succeeds is then just the next version), and writes a
Delta `txn` action per load with compare-and-set, so that a load is in the table once however often it is tried.
"""

import logging
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

import dagster as dg
from pydantic import Field, PrivateAttr
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from resources.catalog import UnityCatalog
from resources.errors import (
    AlreadyLoaded,
    CatalogBusy,
    CatalogDenied,
    CatalogError,
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    RatifyError,
)
from resources.group_commit import CommitQueue, Ratified, Staged
from resources.settings import Settings
from resources.tables import TableDeclaration

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

logger = logging.getLogger(__name__)

ALIAS = "uc"
"""The name under which the catalog is attached."""

_CHECKPOINT_EVERY = 20
_EXTENSIONS = ("httpfs", "delta", "unity_catalog")
_RETRY_WAIT_MS = 200
# How long an attached catalog is used for one append after the other: well below the life of the token that it has.
_ATTACHED_S = 300
# Time for a catalog to restart.
_READ_PATIENCE_S = 6


@dataclass(frozen=True)
class AppendResult:
    """A ratified append: the version it made, the rows it added, the loads it recorded, and how often it was tried."""

    version: int
    rows: int
    loads: tuple[str, ...]
    attempts: int = 1


class DuckDB(dg.ConfigurableResource[Any]):
    """An in-memory DuckDB, opened at first use, closed with the run."""

    catalog: dg.ResourceDependency[UnityCatalog]
    memory_limit: str = Field(default="", description="For example 2GB; empty: DuckDB's own 80 % of the machine")
    threads: int = Field(default=0, description="0: one for each core")
    attempts: int = Field(default=12, description="How often an append that met a conflict or a busy catalog is made")
    commit_patience: int = Field(default=600, description="Seconds to wait for the answer to a commit before giving up")
    aws_region: str = Field(default="us-east-1", description="Region of the object store behind the catalog")

    _con: Any = PrivateAttr(default=None)

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
        """Attach the catalog afresh and give a session on it; local temporary tables end with it.

        Raises:
            CatalogUnavailable, CatalogDenied: the catalog cannot be attached.
        """
        session = DuckDBSession(self._engine().cursor(), self)
        try:
            session.attach()
            yield session
        finally:
            session.close()

    def _engine(self) -> "DuckDBPyConnection":
        if self._con is None:
            self._con = self._open()
        return cast("DuckDBPyConnection", self._con)

    def _open(self) -> "DuckDBPyConnection":
        import duckdb
        import duckdb_extensions  # pyright: ignore[reportMissingTypeStubs] it ships none

        self.catalog.default_schema()
        folder = Settings().home / "duckdb" / "extensions"
        folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, str | bool | int | float | list[str]] = {"extension_directory": str(folder)}
        if self.memory_limit:
            config["memory_limit"] = self.memory_limit
        if self.threads:
            config["threads"] = self.threads
        con = duckdb.connect(config=config)
        try:
            for name in _EXTENSIONS:
                duckdb_extensions.import_extension(name, con=con)
                con.execute(f"LOAD {name}")
            con.execute("SET GLOBAL TimeZone = 'UTC'")
            _ask_again_for(con, _READ_PATIENCE_S)
        except BaseException:
            con.close()
            raise
        return con


class DuckDBSession:
    """One unit of work on a freshly attached catalog."""

    def __init__(self, con: "DuckDBPyConnection", engine: DuckDB) -> None:
        self.con = con
        self._engine = engine
        self._catalog = engine.catalog
        # Versions of our own last commits: while they are the newest, what is attached is not out of date.
        self._at = dict[str, int]()
        self._attached_at = 0.0

    def attach(self) -> None:
        """(Re)attach the catalog, which is the only way to see other writers' commits or to recover from a conflict."""
        to = self._catalog.connection
        name = to.name
        schema = literal(self._catalog.default_schema())
        self._at.clear()
        self._detach()
        # Each time, for an OAuth token lasts an hour, and DuckDB goes on with the one that it attached with.
        self.con.execute(
            f"CREATE OR REPLACE SECRET (TYPE unity_catalog, TOKEN {literal(self._catalog.bearer_token())}, "
            f"ENDPOINT {literal(to.host + '/')}, AWS_REGION {literal(self._engine.aws_region)})"
        )
        with understood(f"attach the catalog {name}"):
            self.con.execute(f"ATTACH {literal(name)} AS {ALIAS} (TYPE unity_catalog, DEFAULT_SCHEMA {schema})")
        self._attached_at = time.monotonic()

    def close(self) -> None:
        """End the session."""
        import duckdb

        with suppress(duckdb.Error):
            self.con.execute("ROLLBACK")
        self._detach()
        self.con.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Tables of the catalog are `uc.<schema>.<table>`."""
        with understood("run a query"):
            return self.con.execute(sql, list(parameters)).fetchall()

    def records(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows by column name."""
        with understood("run a query"):
            cursor = self.con.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def count(self, declaration: TableDeclaration) -> int:
        """Return the number of rows in a table."""
        return int(self.rows(f"SELECT count(*) FROM {ALIAS}.{declaration.layer}.{declaration.name}")[0][0])

    def loaded(self, declaration: TableDeclaration, loads: Sequence[str]) -> set[str]:
        """Return those of the loads whose rows are in the table, by its log."""
        return {load for load, version in self._load_versions(declaration, loads).items() if _is_in(version)}

    def _load_versions(self, declaration: TableDeclaration, loads: Sequence[str]) -> dict[str, int]:
        """The `txn` versions of those loads that the table's log knows: see `_is_in`."""
        internal = literal(self._internal_name(declaration))
        with understood(f"read the log of {declaration.name}"):
            self._touch(declaration)
            found = (
                (load, self.con.execute(f"CALL delta_get_transaction_version({internal}, {literal(load)})").fetchone())
                for load in loads
            )
            return {load: int(row[0]) for load, row in found if row and row[0] is not None}

    def append(self, declaration: TableDeclaration, select: str, loads: Sequence[str]) -> AppendResult:
        """Append the rows of a query to a table in one commit, exactly once for each load.

        Args:
            declaration: The table. Its columns must be just those of the query, in the same order.
            select: A query that reads no table of the same catalog that it writes.
            loads: Ids of what is loaded, at least one; each becomes a Delta `txn` app id.

        Raises:
            AlreadyLoaded: the table holds one of the loads; nothing was committed.
            UnsafeTable: DuckDB would write this table wrong.
            CommitConflict, CatalogBusy, CatalogUnavailable: after all attempts; nothing was committed.
            CommitOutcomeUnknown: the reply was lost and the catalog cannot say; nothing may be repeated unseen.
        """
        if not loads:
            raise ValueError("append needs at least one load id: without it a lost reply could double the rows")
        retrying = Retrying(
            retry=retry_if_exception_type((CommitConflict, CatalogBusy, CatalogUnavailable)),
            stop=stop_after_attempt(self._engine.attempts),
            wait=wait_random_exponential(multiplier=0.05, max=3),
            before_sleep=before_sleep_log(logger, logging.INFO),
            reraise=True,
        )
        for attempt in retrying:
            with attempt:
                # The first attempt trusts that the loads are new, and the commit refuses if they are not.
                number = attempt.retry_state.attempt_number
                made = self._append_once(declaration, select, tuple(loads), look_up=number > 1)
                return replace(made, attempts=number)
        raise AssertionError("tenacity ends with a result or an error")

    def stage(self, select: str, loads: Sequence[str], folder: Path) -> Staged:
        """Write the rows of a query to a Parquet file in `folder`, for `commit_staged`."""
        parquet = folder / f"{uuid4().hex}.parquet"
        rows = self.rows(f"COPY ({select}) TO {literal(str(parquet))} (FORMAT parquet)")[0][0]
        return Staged(parquet, int(rows), tuple(loads))

    def commit_staged(self, declaration: TableDeclaration, staged: Staged) -> Ratified:
        """Append staged rows to a table, in one commit with what other writers of this machine have staged for it.

        Raises:
            As `append`; and AppendFailed: the rows do not go into the table.
        """
        full_name = declaration.full_name(self._catalog.connection.name)
        queue = CommitQueue(Settings().home / "spool" / full_name)
        return queue.commit(staged, lambda group: self._append_group(declaration, group))

    def _append_group(self, declaration: TableDeclaration, group: Sequence[Staged]) -> tuple[int, int]:
        files = ", ".join(literal(str(staged.parquet)) for staged in group)
        loads = [load for staged in group for load in staged.loads]
        made = self.append(declaration, f"SELECT * FROM read_parquet([{files}])", loads)
        if made.version % _CHECKPOINT_EVERY == 0:
            self._checkpoint(declaration)
        return made.version, made.attempts

    def _checkpoint(self, declaration: TableDeclaration) -> None:
        """Sum up the table's log, for every reader and writer reads all of it that came after the last checkpoint."""
        import duckdb

        try:
            self.attach()
            self.con.execute(f"CALL unity_catalog_checkpoint_table('{ALIAS}.{declaration.layer}.{declaration.name}')")
        except (duckdb.Error, RatifyError) as error:
            # The rows are committed, and the next to come by makes one.
            logger.warning("no checkpoint of %s: %s", declaration.name, error)

    def _append_once(
        self, declaration: TableDeclaration, select: str, loads: tuple[str, ...], *, look_up: bool
    ) -> AppendResult:
        full_name = declaration.full_name(self._catalog.connection.name)
        before = self._catalog.version_for_duckdb(declaration)
        if self._at.get(full_name) != before or time.monotonic() - self._attached_at > _ATTACHED_S:
            self.attach()
        with self._transaction(declaration):
            self._touch(declaration)
            versions = self._load_versions(declaration, loads) if look_up else {}
            if there := sorted(load for load, version in versions.items() if _is_in(version)):
                raise AlreadyLoaded(full_name, there)
            if self._catalog.version(full_name) != before:
                raise CommitConflict(f"{full_name} got a new version while it was being attached.")
            with understood(f"append to {full_name}"):
                for load in loads:
                    last = versions.get(load)
                    expected = "NULL" if last is None else f"{last}::UBIGINT"
                    self.con.execute(
                        f"CALL delta_set_transaction_version({literal(self._internal_name(declaration))}, "
                        f"{literal(load)}, {(last or 0) + 1}::UBIGINT, {expected})"
                    )
                target = f"{ALIAS}.{declaration.layer}.{declaration.name}"
                added = self.con.execute(f"INSERT INTO {target} {select}").fetchone()
            self._commit(declaration, loads, before)
        self._at[full_name] = before + 1
        return AppendResult(before + 1, int(added[0]) if added else 0, loads)

    @contextmanager
    def _transaction(self, declaration: TableDeclaration) -> Generator[None]:
        import duckdb

        with understood(f"append to {declaration.name}"):
            self.con.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._at.clear()
            with suppress(duckdb.Error):
                self.con.execute("ROLLBACK")
            raise

    def _commit(self, declaration: TableDeclaration, loads: tuple[str, ...], before: int) -> None:
        # A commit whose reply is lost is sent again, and the catalog knows it again. To give up is what must not happen
        # early: DuckDB then deletes the data file, even if the commit that names it was ratified.
        _ask_again_for(self.con, self._engine.commit_patience)
        try:
            with understood(f"commit to {declaration.name}"):
                self.con.execute("COMMIT")
        except CatalogUnavailable as error:
            self._settle_lost_reply(declaration, loads, before, error)
        finally:
            _ask_again_for(self.con, _READ_PATIENCE_S)

    def _settle_lost_reply(
        self, declaration: TableDeclaration, loads: tuple[str, ...], before: int, error: CatalogUnavailable
    ) -> NoReturn:
        """Find out whether a commit whose reply was lost was ratified; DuckDB has deleted its data file by now."""
        full_name = declaration.full_name(self._catalog.connection.name)
        try:
            if self._catalog.version(full_name) == before:
                raise error
            self.attach()
            ours = self.loaded(declaration, loads)
        except CatalogUnavailable:
            raise CommitOutcomeUnknown(
                f"The catalog stopped answering while version {before + 1} of {full_name} was being committed. Start it "
                "again and repeat the load: its id tells whether it was ratified, so it cannot be written twice."
            ) from error
        if ours:
            raise CommitOutcomeUnknown(
                f"Version {before + 1} of {full_name} was ratified but the reply was lost, and DuckDB then deleted the "
                f"data file that it names. Repair the table in Spark: RESTORE TABLE {full_name} TO VERSION AS OF {before}"
            ) from error
        raise CommitConflict(f"Another writer committed version {before + 1} of {full_name} first.") from error

    def _touch(self, declaration: TableDeclaration) -> None:
        """Make DuckDB load the table, so that its internal Delta catalog is there to be named."""
        self.con.execute(f"SELECT 1 FROM {ALIAS}.{declaration.layer}.{declaration.name} LIMIT 0").fetchall()

    def _internal_name(self, declaration: TableDeclaration) -> str:
        return f"__unity_catalog_internal_{self._catalog.connection.name}_{declaration.layer}_{declaration.name}"

    def _detach(self) -> None:
        import duckdb

        # DETACH may complain about its internal catalogs and has still taken effect.
        with suppress(duckdb.Error):
            self.con.execute(f"DETACH DATABASE IF EXISTS {ALIAS}")


def _is_in(version: int) -> bool:
    """Whether a load's rows are in the table. A `txn` version can only grow: it is odd from the commit that brings the rows,
    and even from one that takes them out again."""
    return version % 2 == 1


def _ask_again_for(con: "DuckDBPyConnection", seconds: int) -> None:
    """How long a request that gets no answer is sent again, by every connection of this engine."""
    con.execute(f"SET GLOBAL http_retry_wait_ms = {_RETRY_WAIT_MS}")
    con.execute("SET GLOBAL http_retry_backoff = 1.0")
    con.execute(f"SET GLOBAL http_retries = {max(1, seconds * 1000 // _RETRY_WAIT_MS)}")


def literal(text: str) -> str:
    """Return a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def understood(what: str) -> Generator[None]:
    """Turn DuckDB's errors that speak of the catalog into ours; others pass through as they are."""
    import duckdb

    try:
        yield
    except RatifyError:
        raise
    except duckdb.Error as error:
        raise _translated(error, what) from error


def _translated(error: Exception, what: str) -> Exception:
    text = str(error)
    line = text.strip().splitlines()[0][:300]
    if "did not match the expected previous version" in text:
        return CommitConflict(f"DuckDB could not {what}: another writer recorded the same load first.")
    for marks, kind, advice in _KINDS:
        if marks.search(text):
            return kind(f"DuckDB could not {what}: {line} {advice}")
    return error


def _says(*words: str, status: str | None = None) -> re.Pattern[str]:
    """Match an error that holds one of the words, or one of the HTTP statuses as a number of its own: the texts also hold
    ports, ids and file names, in which any digits may be found."""
    number = [rf"(?<![\w:./-])({status})(?!\w|[./-]\w)"] if status else []
    return re.compile("|".join([*map(re.escape, words), *number]))


_KINDS: tuple[tuple[re.Pattern[str], type[CatalogError], str], ...] = (
    (_says("already accepted", "CommitVersionConflict", "UpdateRequirementConflict", status="409"), CommitConflict, ""),
    (
        _says("Unauthorized", "Forbidden", "NotAuthorized", "PermissionDenied", status="401|403"),
        CatalogDenied,
        "Check UNITY_TOKEN and the grants of the principal behind it.",
    ),
    (_says("ResourceExhausted", "TooManyRequests", status="429|503"), CatalogBusy, "Try again later."),
    (
        _says("Could not establish connection", "Connection refused", "connection error", "Could not connect", "timed out"),
        CatalogUnavailable,
        "Check that the catalog runs (`ratify status`) and that UNITY_HOST is right.",
    ),
)
