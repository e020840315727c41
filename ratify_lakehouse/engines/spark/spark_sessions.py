"""The Spark sessions of a process: one that all share, and one for each scope of work beside other work.

A session has its own temporary views and configuration, such as the `txn` options of a write. Work in several threads needs
several sessions therefore: a thread that has entered a `SessionScope` gets that scope's.
"""

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.spark.spark_session import SESSION_CONF, is_connect, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def import_client() -> None:
    """Import Spark's client, if it is installed, before several threads use it.

    Its modules import each other: two threads that begin with different ones each wait for the other's, and Python lets one
    of them go on with a module that is half there.
    """
    with suppress(ModuleNotFoundError):
        for module in ("pyspark.sql.connect.session", "delta.connect.exceptions", "dagster_pyspark"):
            import_module(module)


class SessionScope:
    """Work in one thread that has Spark sessions of its own."""

    def __init__(self) -> None:
        self._sessions = list["SparkSession"]()

    @contextmanager
    def entered(self) -> Generator[None]:
        """Let this thread be in the scope."""
        before = _SCOPE.set(self)
        try:
            yield
        finally:
            _SCOPE.reset(before)

    def add(self, session: "SparkSession") -> None:
        """Note a session of the scope."""
        self._sessions.append(session)

    def interrupt(self) -> None:
        """Stop what its sessions are doing: the thread's present call fails."""
        for session in self._sessions:
            # A classic session knows of no interruption from outside, and a stopped one has nothing to interrupt.
            with suppress(Exception):
                session.interruptAll()


_SCOPE = ContextVar[SessionScope | None]("ratify_session_scope", default=None)


def checkpointed(frame: "DataFrame", *, now: bool) -> "DataFrame":
    """Return the rows of a DataFrame, computed once, as a DataFrame of the same session.

    Args:
        frame: The DataFrame.
        now: Whether they are computed now; otherwise their first use does.

    PySpark's Connect client gives a local checkpoint to the active session of the thread, which is the first one that the
    thread opened, whichever session computed it (`proto_to_remote_cached_dataframe`, PySpark 4.2). The server does not find
    it there.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: Any = frame.sparkSession
    if not isinstance(session, ConnectSession):
        return frame.localCheckpoint(eager=now)
    active: Any = ConnectSession._active_session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    before = getattr(active, "session", None)
    active.session = session
    try:
        return frame.localCheckpoint(eager=now)
    finally:
        active.session = before


class SparkSessions:
    """The sessions to one Spark.

    Args:
        remote: sc://host:port (Spark Connect), or a Spark master URL for classic sessions in this process.
        catalog: See `open_session`; so the others.
    """

    def __init__(self, remote: str, catalog: UnityCatalog, conf: Mapping[str, str], retry_seconds: int) -> None:
        self._remote, self._catalog, self._conf, self._retry_seconds = remote, catalog, conf, retry_seconds
        self._shared: Any = None
        self._scoped = dict[SessionScope, Any]()
        self._lock = threading.RLock()

    def current(self) -> "SparkSession":
        """Return the session of this thread's scope, or the shared one, opened at first use.

        Raises:
            SparkUnavailable: the server cannot be reached.
        """
        with self._lock:
            scope = _SCOPE.get()
            if scope is None:
                return self._opened()
            found = self._scoped.get(scope)
            if found is None or getattr(found, "is_stopped", False):
                found = self._scoped[scope] = self._new()
                scope.add(found)
            return cast("SparkSession", found)

    def _opened(self) -> "SparkSession":
        # A process has one such session to a server: the end of another run may have closed it.
        if self._shared is None or getattr(self._shared, "is_stopped", False):
            self._shared = open_session(self._remote, self._catalog, self._conf, self._retry_seconds)
        return cast("SparkSession", self._shared)

    def _new(self) -> "SparkSession":
        shared = self._opened()
        if not is_connect(self._remote):
            return shared.newSession()
        from pyspark.sql import SparkSession

        # dagster-pyspark only opens the process's shared session.
        session: SparkSession = SparkSession.builder.remote(self._remote).create()
        for key, value in (SESSION_CONF | dict(self._conf)).items():
            session.conf.set(key, value)
        return session

    @contextmanager
    def isolated(self) -> Generator["SparkSession"]:
        """A session that is closed after the block."""
        with self._lock:
            session = self._new()
        try:
            yield session
        finally:
            if is_connect(self._remote):
                session.stop()

    def close(self) -> None:
        """Close all that were opened."""
        sessions = [*(self._scoped.values() if is_connect(self._remote) else ()), self._shared]
        self._forget()
        for session in sessions:
            if session is not None and not getattr(session, "is_stopped", False):
                session.stop()

    def drop(self) -> None:
        """Let the next use open new sessions: a server that was restarted knows none of the old ones."""
        sessions = [*self._scoped.values(), self._shared]
        self._forget()
        for session in sessions:
            if client := getattr(session, "client", None):
                # Not `stop`, which asks the server to release the session, for ten minutes if none answers.
                client.close()

    def _forget(self) -> None:
        self._shared = None
        self._scoped.clear()
