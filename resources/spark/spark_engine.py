"""Spark, reached by Spark Connect or as a classic in-process session."""

import logging
import re
import socket
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field, PrivateAttr
from tenacity import (
    Retrying,
    before_sleep_log,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
    wait_random_exponential,
)

from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import TableDeclaration
from resources.delta.commit_history import Commit, commit_from_row
from resources.errors import (
    CatalogDenied,
    CatalogUnavailable,
    CommitConflict,
    NotConfigured,
    RatifyError,
    SparkUnavailable,
    TableMissing,
)
from resources.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

logger = logging.getLogger(__name__)

FULL_REFRESH = "ratify:full refresh"
"""User metadata of the commit that emptied a table so that it is made anew."""

_SESSION_CONF = {
    # Every engine must see the same instant for the same text; the sessions of servers we do not own may differ.
    "spark.sql.session.timeZone": "UTC",
    # By the old API Spark's Parquet filters know no days from 1582-10-05 to 1582-10-14, and miss rows that have them.
    "spark.sql.datetime.java8API.enabled": "true",
    # The default, INT96, counts nanoseconds for some readers (deltalake), who show the year 9999 as 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
COMMITTED = "ratify:"
"""What the user metadata of the commits that `Spark.commit` and `Spark.mirror` make begins with."""

# The server does not answer, or it does and is another one than before.
_GONE = (
    "UNAVAILABLE",
    "SESSION_CLOSED",
    "SESSION_NOT_FOUND",
    "SESSION_CHANGED",
    "OPERATION_NOT_FOUND",
    "NO_ACTIVE_SESSION",
    # Another thread with the same session has found that out, and has given it up.
    "Channel closed",
    "Cannot invoke RPC",
)
NO_WORKER = "Python worker failed to connect back"
"""What stands in Spark's error where a Python process of the server did not answer it in time."""
_NO_TOKEN = re.compile(r"Failed to fetch OAuth token\. HTTP status: 4\d\d.*")
CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "CommitVersionConflict")
"""What stands in the errors of a write that met another one's commit."""


@dataclass(frozen=True)
class WriteResult:
    """What a write did to a table.

    Attributes:
        commit: The commit it made, or None where the table was already as wanted and no version was made.
        version: The table's version after the write.
        rows: Rows in the table after the write.
    """

    commit: Commit | None
    version: int
    rows: int


class Spark(dg.ConfigurableResource[Any]):
    """A Spark session, opened at first use and closed with the run.

    It wraps dagster-pyspark's resource, whose `spark_config` would show a token in clear in the UI and which never stops
    its session.
    """

    catalog: dg.ResourceDependency[UnityCatalog]
    remote: str = Field(
        default="",
        description="sc://host:port (Spark Connect) or a Spark master URL (classic session in this process); empty: "
        "SPARK_REMOTE or the running stack's Connect server",
    )
    conf: dict[str, str] = Field(default_factory=dict, description="More Spark configuration; no secrets")
    retry_seconds: int = Field(default=30, description="How long a server that does not answer is asked again")
    attempts: int = Field(default=5, description="How often a write that met a concurrent commit is made in all")

    _session: Any = PrivateAttr(default=None)

    @property
    def session(self) -> "SparkSession":
        """The session.

        Raises:
            SparkUnavailable: the server cannot be reached.
        """
        # Sessions of one process to one server are one: another run's end may have closed it.
        if self._session is None or getattr(self._session, "is_stopped", False):
            self._session = self._open(self.remote or Settings().spark_url())
        return cast("SparkSession", self._session)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the session, whatever happened in the run."""
        self.close()

    def close(self) -> None:
        """Close the session if one was opened."""
        session, self._session = self._session, None
        if session is not None and not getattr(session, "is_stopped", False):
            session.stop()

    @contextmanager
    def isolated_session(self) -> Generator["SparkSession"]:
        """A session of its own, closed with the block, for a stream whose writes are marked by configuration.

        Over Connect, foreachBatch runs in the very session that started the stream: were it killed between setting a mark
        and taking it back, the next write of that session would carry the mark, and Delta might skip it.
        """
        remote = self.remote or Settings().spark_url()
        with self._understood():
            session = self._another(remote)
            try:
                yield session
            finally:
                if remote.startswith("sc://"):
                    session.stop()

    def _another(self, remote: str) -> "SparkSession":
        here = self.session
        if not remote.startswith("sc://"):
            return here.newSession()
        from pyspark.sql import SparkSession

        session: SparkSession = SparkSession.builder.remote(remote).create()
        for key, value in (_SESSION_CONF | self.conf).items():
            session.conf.set(key, value)
        return session

    def sql(self, text: str, **frames: "DataFrame") -> "DataFrame":
        """Run a query in which `{name}` stands for the DataFrame given by that name."""
        with self._understood():
            return self._run(text, **frames)

    def _run(self, text: str, **frames: "DataFrame") -> "DataFrame":
        # PySpark types `args` but not the keyword arguments that stand for names in the text.
        run = cast("Callable[..., DataFrame]", self.session.sql)  # pyright: ignore[reportUnknownMemberType]
        return run(text, **frames)

    def full_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name, with the catalog's."""
        return declaration.full_name(self.catalog.connection.name)

    def table(self, declaration: TableDeclaration) -> "DataFrame":
        """Return a table's rows, as of now."""
        with self._understood():
            return self.session.table(declaration.full_name(self.catalog.connection.name))

    def rows(self, frame: "DataFrame") -> list[dict[str, Any]]:
        """Run a query and return its rows."""
        with self._understood():
            return [row.asDict(recursive=True) for row in frame.collect()]

    def count(self, declaration: TableDeclaration, version: int | None = None) -> int:
        """Return the number of rows that a table has, or had at a version."""
        travel = "" if version is None else f" VERSION AS OF {version}"
        counted = self.sql(f"SELECT count(*) AS n FROM {declaration.full_name(self.catalog.connection.name)}{travel}")
        return int(self.rows(counted)[0]["n"])

    def ensure_table(self, declaration: TableDeclaration) -> bool:
        """Create the table, and its schema, where they are missing; return whether it was created.

        A table that was made by an earlier declaration gets the columns that it lacks.
        """
        catalog = self.catalog.connection.name
        try:
            there = self.catalog.table(declaration.full_name(catalog))
        except TableMissing:
            self.catalog.ensure_schemas((declaration.layer,))
            return self._created(declaration)
        if adds := declaration.ddl_for_missing(catalog, [column.name or "" for column in there.columns or []]):
            with self._understood():
                self._run(adds).collect()
        return False

    def _created(self, declaration: TableDeclaration) -> bool:
        catalog = self.catalog.connection.name
        try:
            with self._understood():
                self._run(declaration.ddl(catalog)).collect()
        except Exception:
            # IF NOT EXISTS does not help where another makes it at the same moment: Spark has looked before.
            with suppress(TableMissing):
                self.catalog.table(declaration.full_name(catalog))
                return False
            raise
        return True

    def history(self, full_name: str, limit: int | None = None) -> list[Commit]:
        """Return a table's commits, newest first, as DESCRIBE HISTORY tells them."""
        bound = f" LIMIT {limit}" if limit else ""
        rows = self.rows(self.sql(f"DESCRIBE HISTORY {full_name}{bound}"))
        return [commit_from_row(row) for row in rows]

    def mirror(self, declaration: TableDeclaration, read: Callable[[], "DataFrame"]) -> WriteResult:
        """Make a table equal to a DataFrame by one MERGE on the table's keys.

        Rows that differ are updated, new ones inserted, and those that are gone deleted. Where nothing differs, Delta
        makes no version. On a concurrent commit the whole read-transform-commit is made again, because the input may have
        changed too; hence `read` is a function.

        Raises:
            CommitConflict: other writers won every attempt.
        """
        full_name = declaration.full_name(self.catalog.connection.name)
        merge = merge_sql(declaration, full_name)

        def once() -> Commit | None:
            with self._understood(), self.cached(read()) as source:
                source.createOrReplaceTempView("ratify_merge_source")
                return self._committed(full_name, lambda: self._run(merge).collect())

        commit = self._retried(once)
        return WriteResult(commit, self.catalog.version(full_name), self.count(declaration))

    def commit(self, full_name: str, write: Callable[[], object]) -> Commit | None:
        """Run a write to a table that is there, and return its commit; None where it made none.

        Where it met a concurrent commit it is made again.

        Raises:
            CommitConflict: other writers won every attempt.
        """

        def once() -> Commit | None:
            with self._understood():
                return self._committed(full_name, write)

        return self._retried(once)

    def truncate(self, full_name: str) -> Commit | None:
        """Delete all rows of a table that is to be made anew, in a commit that says so; its earlier versions remain.

        Raises:
            CommitConflict: other writers won every attempt.
        """

        def once() -> Commit | None:
            with self._understood():
                return self._committed(full_name, lambda: self._run(f"DELETE FROM {full_name}").collect(), FULL_REFRESH)

        return self._retried(once)

    @contextmanager
    def cached(self, frame: "DataFrame") -> Generator["DataFrame"]:
        """Compute a DataFrame once for all uses in the block: a MERGE alone reads its source twice."""
        with self._understood():
            kept = frame.persist()
            try:
                yield kept
            finally:
                kept.unpersist()

    def _committed(self, full_name: str, write: Callable[[], object], purpose: str = "ratify") -> Commit | None:
        """Run a write under a mark of its own, which begins with its purpose, and find the commit that carries the mark."""
        mark = f"{purpose}:{uuid.uuid4()}"
        before = self.catalog.version(full_name)
        self.session.conf.set(_USER_METADATA, mark)
        try:
            write()
        finally:
            self.session.conf.unset(_USER_METADATA)
        made = self.catalog.version(full_name) - before
        if not made:
            return None
        return next((c for c in self.history(full_name, made) if c.user_metadata == mark), None)

    def _retried(self, work: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type(CommitConflict),
            stop=stop_after_attempt(self.attempts),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            before_sleep=before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        return retrying(work)

    def _open(self, remote: str) -> "SparkSession":
        connect = remote.startswith("sc://")
        where = {"spark.remote": remote} if connect else {"spark.master": remote, **self._classic_conf()}
        conf = {**where, **_SESSION_CONF, **self.conf}
        if connect:
            _await_port(remote, self.retry_seconds)
        # What a closed session leaves behind is released by the server itself; the client warns of it at each end.
        logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.ERROR)
        with self._understood(opening=remote):
            from dagster_pyspark import LazyPySparkResource

            session = LazyPySparkResource(spark_config=conf).spark_session
            if not connect:
                # Not before: PySpark starts its JVM with all that it has on the command line, which every user can read.
                for key, value in self._credentials().items():
                    session.conf.set(key, value)
            session.sql("SELECT 1").collect()
        return session

    def _classic_conf(self) -> dict[str, str]:
        """Configuration that a Connect server has already: Delta, and the catalog."""
        to = self.catalog.connection
        here = f"spark.sql.catalog.{to.name}"
        settings = Settings()
        conf = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.defaultCatalog": to.name,
            here: "io.unitycatalog.spark.UCSingleCatalog",
            f"{here}.uri": to.host,
            # The files' credentials, which the catalog vends for an hour at most.
            f"{here}.renewCredential.enabled": "true",
        }
        if settings.unity_spark_package:
            conf["spark.jars.packages"] = settings.unity_spark_package
        return conf

    def _credentials(self) -> dict[str, str]:
        """What lets a classic session in: a token, or the OAuth client, for which Delta fetches and renews tokens itself."""
        to = self.catalog.connection
        here = f"spark.sql.catalog.{to.name}"
        if to.client_id and to.client_secret:
            return {
                f"{here}.auth.type": "oauth",
                f"{here}.auth.oauth.uri": f"{to.host}/oidc/v1/token",
                f"{here}.auth.oauth.clientId": to.client_id,
                f"{here}.auth.oauth.clientSecret": to.client_secret.get_secret_value(),
            }
        return {f"{here}.token": self.catalog.bearer_token()}

    def translated(self, error: Exception, opening: str = "") -> Exception:
        """Return our error for one of PySpark's or gRPC's, or that one itself where we know nothing better."""
        ours = _translated(error, opening or self.remote or Settings().spark_url())
        if isinstance(ours, SparkUnavailable) and self._session is not None and not opening:
            self._give_up_session()
        return ours

    def _give_up_session(self) -> None:
        """Let the next use open a new session: a server that was started anew knows none of its predecessor's."""
        session, self._session = self._session, None
        if client := getattr(session, "client", None):
            # Not `stop`, which asks the server to release the session, for ten minutes where none answers.
            client.close()

    @contextmanager
    def _understood(self, opening: str = "") -> Generator[None]:
        """YieldWindow what PySpark and gRPC raise into our errors."""
        try:
            from grpc import RpcError
            from pyspark.errors import PySparkException
        except ModuleNotFoundError as error:
            raise NotConfigured("Spark's client is not installed: pip install 'ratify-lakehouse[spark]'") from error

        try:
            yield
        except RatifyError:
            raise
        except (PySparkException, RpcError, ValueError) as error:
            # gRPC says with a ValueError that its channel is closed.
            if (ours := self.translated(error, opening)) is error:
                raise
            raise ours from error


def _await_port(remote: str, seconds: int) -> None:
    """Fail soon where nobody listens: PySpark itself asks again for ten minutes before it says so.

    Raises:
        SparkUnavailable: nothing accepts a connection.
    """
    address = urlsplit(remote)
    retrying = Retrying(
        retry=retry_if_exception_type(OSError), stop=stop_after_delay(seconds), wait=wait_fixed(0.5), reraise=True
    )
    try:
        retrying(lambda: socket.create_connection((address.hostname or "", address.port or 15002), timeout=5).close())
    except OSError as error:
        raise SparkUnavailable(
            f"No Spark answers at {address.hostname}:{address.port or 15002} (asked for {seconds} s): {error}. Check that "
            "it runs (`ratify status`) and that SPARK_REMOTE is right."
        ) from error


def _translated(error: Exception, remote: str) -> Exception:
    text = str(error)
    if any(name in text for name in CONFLICTS):
        return CommitConflict(f"Another writer committed first: {_first_line(text)}")
    unreached = "failed to connect" in text.lower() and NO_WORKER not in text
    if unreached or any(sign in text for sign in _GONE):
        return SparkUnavailable(
            f"Spark at {remote} did not answer: {_first_line(text)}. Check that it runs (`ratify status`) and that "
            "SPARK_REMOTE is right."
        )
    if any(sign in text for sign in ("HTTP 401", "HTTP 403", "NotAuthorized", "PermissionDenied", "PERMISSION_DENIED")):
        return CatalogDenied(
            f"Unity Catalog refused Spark: {_first_line(text)}. Check the token that the Spark server was started with."
        )
    if no_token := _NO_TOKEN.search(text):
        return CatalogDenied(
            f"Unity Catalog gave Spark no token: {no_token.group()[:300]}. Check the OAuth client id and secret that the "
            "Spark server was started with."
        )
    if "java.net.ConnectException" in text or "Connection refused" in text:
        return CatalogUnavailable(
            f"Spark could not reach Unity Catalog: {_first_line(text)}. Check that the catalog runs (`ratify status`)."
        )
    return error


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300]


def merge_sql(declaration: TableDeclaration, full_name: str) -> str:
    """Return the MERGE that makes a table equal to the view `ratify_merge_source`."""
    on = " AND ".join(f"target.{key} <=> source.{key}" for key in declaration.keys)
    columns = declaration.column_names
    target, source = (", ".join(f"{side}.{c}" for c in columns) for side in ("target", "source"))
    return (
        f"MERGE INTO {full_name} AS target USING ratify_merge_source AS source ON {on}\n"
        f"WHEN MATCHED AND NOT (struct({target}) <=> struct({source})) THEN UPDATE SET *\n"
        "WHEN NOT MATCHED THEN INSERT *\n"
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
