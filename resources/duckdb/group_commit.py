"""Group commit: what many processes of one machine want to append to one table goes into one Delta version.

Each writer stages its rows as a Parquet file, puts a request beside it, and waits for the table's lock. Whoever gets the
lock commits all requests that wait, its own and the others', in one transaction, and leaves each writer its answer. So the
commit window is never contended on one machine, and the more writers there are, the more loads a version carries. What goes
on between machines is told in `resources.delta.commit_requests`.

An engine that takes longer for a commit than we take from one to the next would lose to us again and again: beside four
busy writers Spark made a commit in thirty seconds, or none. So whoever holds the lock looks now and then whether another has
lost, and lets it have the next version, while what is to be appended here gathers for the one after.

Nothing here is needed for correctness: a load is in the table once because its id is compared and set in the commit that
brings its rows. A writer that dies leaves a request whose lock is free: so the next one knows that nobody waits for it.
"""

import fcntl
import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from resources import errors
from resources.errors import AlreadyLoaded, CatalogError, RatifyError

logger = logging.getLogger(__name__)

MAX_LOADS = 2_000
MAX_BYTES = 1 << 30
_MAKING_S = 60
# Longer than anyone waits for the catalog.
_STAGED_S = 86_400
_ASK_S = 0.003
_LOOK_S = 1.0
# Where the engine that lost has died, one turn is lost with it.
_MAX_YIELD_S = 30.0


@dataclass(frozen=True)
class Staged:
    """Rows that wait to be appended.

    Attributes:
        parquet: A file of rows.
        rows: How many.
        size: Bytes.
        loads: Ids of what is loaded; each becomes a Delta `txn` app id.
        columns: Those that the file has, by name, with their types in Spark SQL's words.
        stats: Delta's statistics of the file.
        withdrawn: Ids of loads whose rows are not in the table any more; the commit marks them so.
    """

    parquet: Path
    rows: int
    size: int
    loads: tuple[str, ...]
    columns: Mapping[str, str]
    stats: Mapping[str, Any]
    withdrawn: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return it on one line, for `from_json`."""
        return json.dumps({**vars(self), "parquet": str(self.parquet)})

    @classmethod
    def from_json(cls, line: str) -> "Staged":
        """Read it again."""
        said: dict[str, Any] = json.loads(line)
        said |= {"parquet": Path(said["parquet"]), "loads": tuple(said["loads"]), "withdrawn": tuple(said["withdrawn"])}
        return cls(**said)


@dataclass(frozen=True)
class Ratified:
    """A ratified append: the version that it is in, and the rows and loads that it brought.

    Attributes:
        attempts: How often the commit was tried.
        shared: Number of appends that share the version.
    """

    version: int
    rows: int
    loads: tuple[str, ...]
    attempts: int = 1
    shared: int = 1


Append = Callable[[Sequence[Staged]], tuple[int, int]]
"""Appends the rows of all in one commit and returns its version, and how often it was tried. Raises RatifyError; nothing is
committed then, but with CommitOutcomeUnknown."""


@dataclass(frozen=True)
class YieldWindow:
    """A turn that other engines were given.

    Attributes:
        lost: The version that one of them lost to us, before it.
        seconds: How long we waited at most.
        taken: Whether another version came meanwhile.
    """

    lost: int = -1
    seconds: float = 2
    taken: bool = True

    @property
    def next_seconds(self) -> float:
        """How long the next may be: an engine that was not done in time needs longer, as on a machine that is busy."""
        return self.seconds if self.taken else min(_MAX_YIELD_S, self.seconds * 2)


OpenYieldWindow = Callable[[YieldWindow], YieldWindow]
"""Gives a turn to an engine that lost a version since the last turn, or returns that one, where none has."""


class CommitQueue:
    """The requests for one table on this machine."""

    def __init__(self, folder: Path, max_loads: int = MAX_LOADS, max_bytes: int = MAX_BYTES) -> None:
        """`folder` is on a local disk, the same for all processes that share the queue, and for no other table.

        A commit takes requests until it has `max_loads` loads or `max_bytes` bytes of Parquet, and at least one.
        """
        self._folder = folder
        self._max_loads = max_loads
        self._max_bytes = max_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def commit(self, staged: Staged, append: Append, open_yield_window: OpenYieldWindow | None = None) -> Ratified:
        """Append the staged rows, with those of whoever else waits; then, at times, `open_yield_window` to other engines.

        Raises:
            AlreadyLoaded: the table holds one of the loads; nothing of this append was committed.
            CatalogError: as `append` raises it, here or in the writer that held the lock.
            AppendFailed: the rows cannot be appended to this table.
        """
        with self._request(staged) as own:
            while (answer := _taken(own)) is None:
                with self._lock() as held:
                    if held and own.exists():
                        # Ours is among them, but where more wait than fit into one commit: then those are older.
                        _serve(self._waiting(), append)
                        if open_yield_window:
                            self._open_yield_window(open_yield_window)
                if not held:
                    time.sleep(_ASK_S)
            return _understood(answer, staged)

    @contextmanager
    def _request(self, staged: Staged) -> Generator[Path]:
        """A request that is there, and locked, for as long as its writer waits."""
        path = self._folder / f"{time.time_ns():020d}-{uuid4().hex}.request"
        with path.with_suffix(".making").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(staged.to_json())
            file.flush()
            path.with_suffix(".making").rename(path)
            try:
                yield path
            finally:
                # Still there where we stop waiting, as at Ctrl-C. Whoever holds the lock may just be committing it: whether
                # it was is then told by its loads, as after a crash.
                path.unlink(missing_ok=True)
                _taken(path)

    @contextmanager
    def _lock(self) -> Generator[bool]:
        """Try to take the table's lock, and say whether it is held."""
        with (self._folder / "lock").open("w") as file:
            yield _free(file)

    def _open_yield_window(self, open_yield_window: OpenYieldWindow) -> None:
        """Ask for it, but not at every commit. The lock is held, and the answers are given."""
        # No dot in its name: it is nobody's request.
        noted = self._folder / "yield-window"
        last = YieldWindow()
        with suppress(FileNotFoundError, ValueError):
            if time.time() - noted.stat().st_mtime < _LOOK_S:
                return
            last = YieldWindow(**json.loads(noted.read_text()))
        noted.write_text(json.dumps(vars(open_yield_window(last))))

    def _waiting(self) -> dict[Path, Staged]:
        """The oldest requests that go into one commit. The lock is held."""
        self._sweep()
        group, seen, size = dict[Path, Staged](), set[str](), 0
        for path in sorted(self._folder.glob("*.request")):
            staged = Staged.from_json(path.read_text().splitlines()[0])
            size += staged.size
            if group and (len(seen) + len(staged.loads) > self._max_loads or size > self._max_bytes):
                break
            # Of two with the same load the second has to wait, and to be told that the table holds it.
            if seen.isdisjoint(staged.loads):
                group[path] = staged
                seen.update(staged.loads)
        return group

    def _sweep(self) -> None:
        """Clear away what writers left that died: whoever repeats their loads stages them again. The lock is held."""
        for path in self._folder.glob("*.*"):
            with suppress(FileNotFoundError):
                # Of one that is being made its age must tell: it is there for a moment before it is locked.
                age = time.time() - path.stat().st_mtime
                if path.suffix == ".parquet" and age > _STAGED_S:
                    path.unlink()
                if path.suffix == ".parquet" or (path.suffix == ".making" and age < _MAKING_S):
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
        version, attempts = append(list(group.values()))
    except AlreadyLoaded as error:
        known = {path: sorted(set(error.loads).intersection(staged.loads)) for path, staged in group.items()}
        for path in filter(known.get, group):
            _answer([path], error="AlreadyLoaded", table=error.table, loads=known[path])
        _serve({path: staged for path, staged in group.items() if not known[path]}, append)
    except CatalogError as error:
        _answer(group, error=type(error).__name__, message=str(error))
    except Exception as error:
        if len(group) > 1:
            # One of them is at fault, and only its own writer is to hear of it.
            for path, staged in group.items():
                _serve({path: staged}, append)
        elif isinstance(error, RatifyError):
            _answer(group, error=type(error).__name__, message=str(error))
        else:
            logger.exception("an append failed")
            _answer(group, error="AppendFailed", message=f"{type(error).__name__}: {error}")
    else:
        _answer(group, version=version, attempts=attempts, shared=len(group))


def _free(file: IO[str]) -> bool:
    """Take a file's lock, if nobody has it: of a request's, that means that its writer is gone."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answer(requests: Iterable[Path], **answer: Any) -> None:
    """Into the request itself, for that is the file which its writer keeps locked for as long as it lives."""
    for request in requests:
        with request.open("a") as file:
            file.write("\n" + json.dumps(answer))
        request.rename(request.with_suffix(".answer"))


def _taken(request: Path) -> dict[str, Any] | None:
    """The answer to a request, which is there once."""
    path = request.with_suffix(".answer")
    try:
        answer = json.loads(path.read_text().splitlines()[-1])
    except FileNotFoundError:
        return None
    path.unlink()
    return answer


def _understood(answer: dict[str, Any], staged: Staged) -> Ratified:
    error = answer.get("error")
    if error is None:
        return Ratified(answer["version"], staged.rows, staged.loads, answer["attempts"], answer["shared"])
    if error == "AlreadyLoaded":
        raise AlreadyLoaded(answer["table"], answer["loads"])
    raise getattr(errors, error)(answer["message"])
