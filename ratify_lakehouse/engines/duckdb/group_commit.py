"""Group commit: pending appends from all writers on one machine share one commit.

Each writer stages its rows as a Parquet file, puts a request beside it, and waits for the table's lock. The writer that has
the lock commits all waiting requests, its own and the others', in one transaction, and leaves each writer an answer. So
writers on one machine never compete for a version, and with more writers a version carries more loads. Writers on other
machines use `ratify_lakehouse.delta.commit_requests`.

An engine that needs longer for a commit than we need between two would lose to us again and again: beside four busy
writers Spark committed once in thirty seconds, or never. So the writer that holds the lock checks now and then whether
another engine has lost a version. If so, it opens a yield window: it lets the other engine go first, while appends here
queue up for the version after.

A dead writer's lock is released and its request is discarded. Group commit is only an optimization: the catalog alone
decides, because a load id is compared and set in the commit that adds its rows.
"""

import fcntl
import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from os import SEEK_END
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from ratify_lakehouse import errors
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.lost_versions import newest_lost_version, wait_for_other_version
from ratify_lakehouse.errors import AlreadyLoaded, CatalogError, RatifyError, ReadBeforeErasure
from ratify_lakehouse.settings import CatalogConnection

logger = logging.getLogger(__name__)

MAX_LOADS = 2_000
"""The most loads of one commit, apart from those of a single append."""
MAX_BYTES = 1 << 30
"""The most bytes of Parquet of one commit, apart from those of a single append."""
_UNLOCKED_S = 60
# Longer than any writer waits for the catalog.
_STAGED_S = 86_400
_LOCK_POLL_S = 0.003
_CHECK_LOST_S = 1.0
# If the engine that lost has died, one window of this length is wasted.
_MAX_YIELD_S = 30.0


@dataclass(frozen=True)
class Staged:
    """A pending append: rows that wait to be committed.

    Attributes:
        parquet: A file of rows.
        rows: How many.
        size: Bytes.
        loads: Ids of what is loaded; each becomes a Delta `txn` app id.
        columns: Types of the file's columns by name, in Spark SQL.
        stats: Delta's statistics of the file.
        load_details: What the commit records of the loads, one JSON object each.
        fence: The table's before the rows were read (see `ratify_lakehouse.delta.erasure_fence`).
    """

    parquet: Path
    rows: int
    size: int
    loads: tuple[str, ...]
    columns: Mapping[str, str]
    stats: Mapping[str, Any]
    load_details: tuple[Mapping[str, Any], ...] = ()
    fence: str | None = None

    def to_json(self) -> str:
        """Return the append as one line of JSON."""
        return json.dumps({**vars(self), "parquet": str(self.parquet)})

    @classmethod
    def from_json(cls, line: str) -> "Staged":
        """Return the append that `to_json` wrote."""
        content: dict[str, Any] = json.loads(line)
        content |= {
            "parquet": Path(content["parquet"]),
            "loads": tuple(content["loads"]),
            "load_details": tuple(content["load_details"]),
        }
        return cls(**content)


@dataclass(frozen=True)
class Ratified:
    """A ratified append: its version, and the rows and loads that it added.

    Attributes:
        attempts: How often the commit was tried.
        shared: Number of appends that share the version.
        completed: Whether what follows a commit (`DuckDBSession.commit_staged`) is the duty of the writer that committed, on
            another machine, or done by it.
    """

    version: int
    rows: int
    loads: tuple[str, ...]
    attempts: int = 1
    shared: int = 1
    completed: bool = False


@dataclass(frozen=True)
class CommittedGroup:
    """The commit of a group of appends; see Ratified for the attributes."""

    version: int
    attempts: int
    completed: bool = False


Append = Callable[[Sequence[Staged]], CommittedGroup]
"""Appends the rows of all in one commit. Raises RatifyError: nothing was committed, unless it is CommitOutcomeUnknown."""


@dataclass(frozen=True)
class YieldWindow:
    """A window in which other engines could commit first.

    Attributes:
        lost: The version that one of them had lost to us.
        seconds: The longest that we waited.
        taken: Whether another engine committed in the window.
    """

    lost: int = -1
    seconds: float = 2
    taken: bool = True

    @property
    def next_seconds(self) -> float:
        """Length of the next window: an engine that did not commit in time needs longer, as on a busy machine."""
        return self.seconds if self.taken else min(_MAX_YIELD_S, self.seconds * 2)


Complete = Callable[[int], None] | None
"""What follows a commit, given its version."""
OpenYieldWindow = Callable[[YieldWindow], YieldWindow]
"""Yields to an engine that lost a version since the last window, or returns that last window if none has."""


def yield_windows(log: DeltaLog) -> OpenYieldWindow:
    """Return what opens yield windows for the engines that commit to a table, by its log."""

    def open_window(last: YieldWindow) -> YieldWindow:
        with suppress(RatifyError):
            if (lost := newest_lost_version(log, last.lost)) > last.lost:
                seconds = last.next_seconds
                return YieldWindow(lost, seconds, wait_for_other_version(log, seconds))
        return last

    return open_window


class CommitQueue:
    """The requests for one table on this machine."""

    def __init__(self, folder: Path) -> None:
        """`folder` is on a local disk, shared by all processes that append to the table, and used for no other table."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def folder_of(home: Path, full_name: str, to: CatalogConnection) -> Path:
        """Return the folder that all writers of this machine share which append to a table as this principal."""
        secret = to.token.get_secret_value() if to.token else ""
        who = sha256("\n".join([to.host, to.client_id or "", secret]).encode()).hexdigest()[:12]
        return home / "spool" / f"{full_name}-{who}"

    def commit(self, staged: Staged, append: Append, open_yield_window: OpenYieldWindow | None = None) -> Ratified:
        """Append the staged rows together with those of all waiting writers; at times, open a yield window afterwards.

        Raises:
            AlreadyLoaded: the table holds one of the loads; nothing of this append was committed.
            CatalogError: as `append` raises it, here or in the writer that held the lock.
            AppendFailed: the rows cannot be appended to this table.
        """
        with self._request(staged) as own:
            while (answer := _taken(own)) is None:
                with self._lock() as held:
                    if held and own.exists():
                        # Ours is among them, unless more requests wait than fit into one commit: then those are older.
                        _serve(self._waiting(), append)
                        if open_yield_window:
                            self._open_yield_window(open_yield_window)
                if not held:
                    time.sleep(_LOCK_POLL_S)
            return _result(answer, staged)

    @contextmanager
    def _request(self, staged: Staged) -> Generator[Path]:
        """A request that exists, and is locked, for as long as its writer waits."""
        path = self._folder / f"{time.time_ns():020d}-{uuid4().hex}.request"
        with path.with_suffix(".making").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(staged.to_json())
            file.flush()
            path.with_suffix(".making").rename(path)
            try:
                yield path
            finally:
                # It still exists if we stop waiting, as on Ctrl-C. The holder of the lock may just be committing it: then
                # the load ids show whether it was committed, as after a crash.
                path.unlink(missing_ok=True)
                _taken(path)

    @contextmanager
    def _lock(self) -> Generator[bool]:
        """Try to take the table's lock, and yield whether we hold it."""
        with (self._folder / "lock").open("w") as file:
            yield _free(file)

    def _open_yield_window(self, open_yield_window: OpenYieldWindow) -> None:
        """Open a yield window, but do not check at every commit. The lock is held, and the answers are written."""
        # No dot in its name, so it is no request.
        state = self._folder / "yield-window"
        last = YieldWindow()
        with suppress(FileNotFoundError, ValueError):
            if time.time() - state.stat().st_mtime < _CHECK_LOST_S:
                return
            last = YieldWindow(**json.loads(state.read_text()))
        state.write_text(json.dumps(vars(open_yield_window(last))))

    def _waiting(self) -> dict[Path, Staged]:
        """The oldest requests that go into one commit. The lock is held."""
        self._sweep()
        group, seen, size = dict[Path, Staged](), set[str](), 0
        for path in sorted(self._folder.glob("*.request")):
            try:
                staged = Staged.from_json(path.read_text().splitlines()[0])
            except FileNotFoundError:
                # Its writer has stopped waiting.
                continue
            size += staged.size
            if group and (len(seen) + len(staged.loads) > MAX_LOADS or size > MAX_BYTES):
                break
            # Of two with the same load the second waits, and then gets AlreadyLoaded.
            if seen.isdisjoint(staged.loads):
                group[path] = staged
                seen.update(staged.loads)
        return group

    def _sweep(self) -> None:
        """Remove the files of dead writers: a repeated load is staged again. The lock is held."""
        for path in self._folder.glob("*.*"):
            with suppress(FileNotFoundError):
                # A request that is being written exists for a moment before it is locked, so its age decides.
                age = time.time() - path.stat().st_mtime
                if path.suffix == ".parquet" and age > _STAGED_S:
                    path.unlink()
                if path.suffix == ".parquet" or (path.suffix == ".making" and age < _UNLOCKED_S):
                    continue
            with suppress(FileNotFoundError), path.open() as file:
                if not _free(file):
                    continue
                if path.suffix != ".answer" and (line := file.readline()):
                    with suppress(ValueError):
                        Staged.from_json(line).parquet.unlink(missing_ok=True)
                path.unlink()


def _serve(group: dict[Path, Staged], append: Append) -> None:
    """Append a group of requests and leave each its answer. The lock is held."""
    if not group:
        return
    try:
        committed = append(list(group.values()))
    except AlreadyLoaded as error:
        known = {path: sorted(set(error.loads).intersection(staged.loads)) for path, staged in group.items()}
        for path in filter(known.get, group):
            _answer([path], error="AlreadyLoaded", table=error.table, loads=known[path])
        _serve({path: staged for path, staged in group.items() if not known[path]}, append)
    except Exception as error:
        of_all = isinstance(error, CatalogError) and not isinstance(error, ReadBeforeErasure)
        if len(group) > 1 and not of_all:
            # Only the writer whose append fails gets the error.
            for path, staged in group.items():
                _serve({path: staged}, append)
        elif isinstance(error, RatifyError):
            _answer(group, error=type(error).__name__, message=str(error))
        else:
            logger.exception("an append failed")
            _answer(group, error="AppendFailed", message=f"{type(error).__name__}: {error}")
    else:
        _answer(group, **vars(committed), shared=len(group))


def completed(complete: Complete, version: int) -> bool:
    """Do what follows a commit; return whether it was done."""
    try:
        if complete:
            complete(version)
    except Exception:
        # Whoever needs it does it again, and gets the error if it stays.
        logger.exception("version %d is committed, but what follows it failed", version)
        return False
    return complete is not None


def _free(file: IO[str]) -> bool:
    """Try to take a file's lock. If a request's lock is free, its writer has died."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answer(requests: Iterable[Path], **answer: Any) -> None:
    """Append the answer to the request itself, because its writer keeps that file locked as long as it lives.

    A writer that has stopped waiting has removed its request, and gets no answer.
    """
    for request in requests:
        with suppress(FileNotFoundError):
            # Not "a", which would create the file.
            with request.open("r+") as file:
                file.seek(0, SEEK_END)
                file.write("\n" + json.dumps(answer))
            request.rename(request.with_suffix(".answer"))


def _taken(request: Path) -> dict[str, Any] | None:
    """The answer to a request, which is removed; None if there is none yet."""
    path = request.with_suffix(".answer")
    try:
        answer = json.loads(path.read_text().splitlines()[-1])
    except FileNotFoundError:
        return None
    path.unlink()
    return answer


def _result(answer: dict[str, Any], staged: Staged) -> Ratified:
    error = answer.get("error")
    if error is None:
        return Ratified(rows=staged.rows, loads=staged.loads, **answer)
    if error == "AlreadyLoaded":
        raise AlreadyLoaded(answer["table"], answer["loads"])
    raise getattr(errors, error)(answer["message"])
