"""Child processes: they end with their parent, and are started again when they die."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from ratify_lakehouse.embedded.embedded_errors import PortTaken, ProcessFailed

LOCALHOST = "127.0.0.1"

T = TypeVar("T")
# Where `python -m embedded.…` finds this package, installed or not.
PACKAGE_ROOT = Path(__file__).parents[2]
# A log has at most so many bytes, and as many in the file of what it had before.
_LOG_BYTES = 10 << 20


class Child:
    """A child process that watches its standard input, whose other end only this process holds.

    The end of that pipe is the one signal that reaches a child on every operating system when its parent is killed
    with SIGKILL. The child runs in its own session, so that Ctrl-C in a terminal reaches the parent only, which then
    stops its children in order. `environ` is added to this process's environment; the child works in the folder `cwd`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        stdout: Path | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path = PACKAGE_ROOT,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self.rotate_log()
        with log.open("a") as errors, contextlib.ExitStack() as stack:
            output: IO[str] = stack.enter_context(stdout.open("w")) if stdout else errors
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                cwd=cwd,
                env=os.environ | dict(environ or {}),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def rotate_log(self) -> None:
        """Copy a log of more than 10 MB to `<name>.1` and empty it; the child, which appends to it, need not know.

        What the child writes between the two is lost.
        """
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
            os.truncate(self.log, 0)

    def wait_until(self, ready: Callable[[], T | None], timeout: float) -> T:
        """Return the first answer of `ready` that is not None.

        Raises:
            ProcessFailed: the process died before, or `timeout` seconds passed.
        """

        def check() -> T | None:
            answer = ready()
            if answer is None and self.exit_code is not None:
                raise ProcessFailed(self.name, f"died at its start with exit code {self.exit_code}", self.log)
            return answer

        answer = wait_for(check, timeout)
        if answer is None:
            raise ProcessFailed(self.name, f"did not answer within {timeout:.0f} s", self.log)
        return answer

    def stop(self, grace: float = 10) -> None:
        """End it by SIGTERM, or by SIGKILL if it still runs `grace` seconds later."""
        self._process.terminate()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()


class Restarts:
    """How often a child may be started again: at most `limit` times a minute, each time after a longer pause."""

    def __init__(self, limit: int = 5, window: float = 60, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._window = window
        self._clock = clock
        self._recent: deque[float] = deque()

    def __str__(self) -> str:
        return f"more than {self._limit} times within {self._window:.0f} s"

    def next_pause(self) -> float | None:
        """Return the seconds to wait before the next start; None when there were too many."""
        now = self._clock()
        while self._recent and now - self._recent[0] > self._window:
            self._recent.popleft()
        if len(self._recent) >= self._limit:
            return None
        self._recent.append(now)
        return 0.25 * 2 ** (len(self._recent) - 1)


def wait_for(check: Callable[[], T | None], seconds: float, every: float = 0.05) -> T | None:
    """Return the first result of `check` that is not None; None when there was none for `seconds`."""
    retrying = Retrying(
        retry=retry_if_result(lambda result: result is None),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(every),
        retry_error_callback=lambda _: None,
    )
    return retrying(check)


def call_at_end_of_input(stop: Callable[[], None]) -> None:
    """Call `stop`, in a thread, when the parent closes our standard input, which it also does by dying."""

    def watch() -> None:
        # Descriptor 0 itself: at exit the interpreter would wait for a lock that a reader of sys.stdin holds.
        while os.read(0, 4096):
            pass
        stop()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def answers(port: int) -> bool:
    """Whether something accepts connections on this port of this machine."""
    try:
        with socket.create_connection((LOCALHOST, port), timeout=1):
            return True
    except OSError:
        return False


def free_port(port: int, server: str) -> int:
    """Return `port` when it is free, or a free one when it is 0.

    Raises:
        PortTaken: another process listens on it.
    """
    with socket.socket() as probe:
        # Connections of a server that has just stopped linger for a minute; they do not hold its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError as error:
            raise PortTaken(
                f"port {port}, asked for by the {server}, cannot be used ({error.strerror}). Choose another port, or 0 "
                "for any free one."
            ) from error
        return int(probe.getsockname()[1])
