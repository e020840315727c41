"""A whole lakehouse on one machine: `up`, `down` and `status` of the stack that `stack_process` holds."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from ratify_lakehouse.embedded.child_process import PACKAGE_ROOT, answers, wait_for
from ratify_lakehouse.embedded.embedded_errors import StackFailed, StackRunning, tail
from ratify_lakehouse.embedded.private_files import Progress
from ratify_lakehouse.embedded.runtime_setup import prepare
from ratify_lakehouse.embedded.stack_state import EXIT_RUNNING, StackConfig, StackState, forget_stale, holder, read_state

_UP_S = 300
_DOWN_S = 40

# The supervisors started here: the pipe by which one ends with this process closes when nothing refers to it.
_spawned: list[subprocess.Popen[bytes]] = []


def up(config: StackConfig, *, detached: bool, progress: Progress) -> StackState:
    """Start a stack, or take the one that runs in this home already, and return it when it answers.

    A detached stack survives this process and runs until `down`. Any other ends with this process, even if that is killed.

    Raises:
        UnsuitableJava, JarsUnavailable, ConnectorBuildFailed: something that it needs is missing.
        StackRunning: the stack that runs in this home is not the one that `config` asks for.
        StackFailed: it did not start; the message carries the end of the supervisor's log.
    """
    config = _absolute(config)
    if holder(config.home) is None:
        if config.spark or config.kafka:
            prepare(config, progress)
        return _spawn(config, detached=detached, progress=progress)
    return _adopt(config, progress)


def down(home: Path) -> bool:
    """Stop the stack of this home, and return when it has ended; False when none was running.

    Raises:
        StackFailed: its supervisor cannot be signalled.
    """
    home = home.resolve()
    pid = holder(home)
    if pid is None:
        forget_stale(home)
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            break
        except PermissionError as error:
            raise StackFailed(f"the stack of {home} (process {pid}) belongs to another user: stop it as them") from error
        if wait_for(lambda: holder(home) is None or None, _DOWN_S):
            break
    for process in [process for process in _spawned if process.poll() is not None]:
        _spawned.remove(process)
    forget_stale(home)
    return True


def status(home: Path) -> StackState | None:
    """Return the stack that runs in this home; None when none runs, or when it does not answer (yet)."""
    home = home.resolve()
    if holder(home) is None:
        forget_stale(home)
        return None
    state = read_state(home)
    if state is None:
        return None
    ports = [server.port for server in (state.spark, state.kafka) if server]
    if state.catalog.pid:
        ports.append(state.catalog.port)
    return state if all(map(answers, ports)) else None


@contextlib.contextmanager
def running(config: StackConfig, progress: Progress) -> Generator[StackState]:
    """A stack for the length of a `with` block; one that ran before is used, and left running."""
    ran_before = holder(config.home.resolve()) is not None
    state = up(config, detached=False, progress=progress)
    try:
        yield state
    finally:
        if not ran_before:
            down(config.home)


def _absolute(config: StackConfig) -> StackConfig:
    return config.model_copy(update={"home": config.home.resolve(), "jars_dir": config.jars_dir.resolve()})


@contextlib.contextmanager
def _config_file(config: StackConfig) -> Generator[Path]:
    """Write the configuration into a private file, which exists while the supervisor starts.

    Each start has its own file: of two starts that compete for one home, neither reads the other's.
    """
    with tempfile.NamedTemporaryFile("w", dir=config.home, prefix="stack-config-", suffix=".json") as file:
        file.write(config.model_dump_json(indent=2))
        file.flush()
        yield Path(file.name)


def _spawn(config: StackConfig, *, detached: bool, progress: Progress) -> StackState:
    log = config.home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    with _config_file(config) as config_file:
        command = [sys.executable, "-m", "ratify_lakehouse.embedded.stack_process", str(config_file)]
        with log.open("a") as output:
            process = subprocess.Popen(
                command if detached else [*command, "--exit-with-stdin"],
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=PACKAGE_ROOT,
            )
        _spawned.append(process)
        try:
            return _await_ready(config, process, log, progress)
        except BaseException:
            # An interrupted start leaves nothing behind.
            process.terminate()
            process.wait()
            raise


def _await_ready(config: StackConfig, process: subprocess.Popen[bytes], log: Path, progress: Progress) -> StackState:
    reported = 0

    def ready() -> StackState | None:
        nonlocal reported
        lines = log.read_text(errors="replace").splitlines()
        for line in lines[reported:]:
            progress(line)
        reported = len(lines)
        state = status(config.home)
        if state and state.pid == process.pid:
            return state
        if process.poll() == EXIT_RUNNING:
            return _adopt(config, progress)
        if process.returncode is not None:
            raise StackFailed(f"the stack did not start. Its log ({log}):\n{tail(log)}")
        return None

    state = wait_for(ready, _UP_S, every=0.1)
    if state is None:
        raise StackFailed(f"the stack did not start within {_UP_S} s. Its log ({log}):\n{tail(log)}")
    return state


def _adopt(config: StackConfig, progress: Progress) -> StackState:
    progress(f"a stack runs in {config.home} already (process {holder(config.home)})")

    def running_state() -> StackState | None:
        state = status(config.home)
        if state is None and holder(config.home) is None:
            raise StackFailed(f"the stack that ran in {config.home} has ended: start it again")
        return state

    state = wait_for(running_state, _UP_S, every=0.1)
    if state is None:
        raise StackFailed(f"the stack that runs in {config.home} does not answer: stop it (ratify down) and try again")
    missing = (config.spark and state.spark is None) or (config.kafka and state.kafka is None)
    if state.catalog.name != config.catalog or missing:
        raise StackRunning(
            f"the stack that runs in {config.home} serves the catalog {state.catalog.name} "
            f"{'with' if state.spark else 'without'} Spark and {'with' if state.kafka else 'without'} Kafka, not what was "
            "requested. Stop it first: ratify down"
        )
    return state
