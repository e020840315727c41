"""A whole lakehouse on one machine: `up`, `down` and `status`, and the supervisor as a program.

`python -m embedded.embedded_stack --home DIR` holds the stack in the foreground until Ctrl-C.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

from embedded.child_process import PACKAGE_ROOT, answers
from embedded.embedded_errors import EmbeddedError, StackFailed, StackRunning, tail
from embedded.private_files import Progress
from embedded.runtime_setup import prepare
from embedded.stack_state import StackConfig, StackState, forget_stale, holder, read_state
from embedded.supervisor import Stopped, Supervisor, raise_stopped_on_signals

# How a supervisor says that it lost the race for the home.
_EXIT_RUNNING = 3
_UP_S = 300
_DOWN_S = 40

# The supervisors started here. Those that end with this process hang on a pipe that closes when nothing refers to it.
_spawned: list[subprocess.Popen[bytes]] = []


def up(config: StackConfig, *, detached: bool, progress: Progress) -> StackState:
    """Start a stack, or take the one that runs in this home already, and return it when it answers.

    A detached stack survives this process, and runs until `down`. One that is not ends with this process, however
    that ends.

    Raises:
        UnsuitableJava, JarsUnavailable, ConnectorBuildFailed: what it needs is not there.
        StackRunning: the stack that runs in this home is another one than `config` asks for.
        StackFailed: it did not come up; the message carries what the supervisor said.
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
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            break
        except PermissionError as error:
            raise StackFailed(f"the stack of {home} (process {pid}) belongs to another user: stop it as them") from error
        deadline = time.monotonic() + _DOWN_S
        while holder(home) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        if holder(home) is None:
            break
    for process in [process for process in _spawned if process.poll() is not None]:
        _spawned.remove(process)
    forget_stale(home)
    return True


def status(home: Path) -> StackState | None:
    """Return the stack that runs in this home; None when there is none, or when it does not answer (yet)."""
    home = home.resolve()
    if holder(home) is None:
        forget_stale(home)
        return None
    state = read_state(home)
    if state is None:
        return None
    ours = [server.port for server in (state.spark, state.kafka) if server]
    if state.catalog.pid:
        ours.append(state.catalog.port)
    return state if all(map(answers, ours)) else None


@contextlib.contextmanager
def running(config: StackConfig, progress: Progress) -> Generator[StackState]:
    """A stack for the length of a `with` block; one that ran before is used, and left running."""
    found = holder(config.home.resolve()) is not None
    state = up(config, detached=False, progress=progress)
    try:
        yield state
    finally:
        if not found:
            down(config.home)


def _absolute(config: StackConfig) -> StackConfig:
    return config.model_copy(update={"home": config.home.resolve(), "jars_dir": config.jars})


def _spawn(config: StackConfig, *, detached: bool, progress: Progress) -> StackState:
    log = config.home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    command = [sys.executable, "-m", "embedded.embedded_stack", *_arguments(config)]
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
    told = 0
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline:
        lines = log.read_text(errors="replace").splitlines()
        for line in lines[told:]:
            progress(line)
        told = len(lines)
        state = status(config.home)
        if state and state.pid == process.pid:
            return state
        if process.poll() == _EXIT_RUNNING:
            return _adopt(config, progress)
        if process.returncode is not None:
            raise StackFailed(f"the stack did not come up. It said ({log}):\n{tail(log)}")
        time.sleep(0.1)
    raise StackFailed(f"the stack did not come up within {_UP_S} s. It said ({log}):\n{tail(log)}")


def _adopt(config: StackConfig, progress: Progress) -> StackState:
    progress(f"a stack runs in {config.home} already (process {holder(config.home)})")
    deadline = time.monotonic() + _UP_S
    while (state := status(config.home)) is None:
        if holder(config.home) is None:
            raise StackFailed(f"the stack that ran in {config.home} has ended: start it again")
        if time.monotonic() > deadline:
            raise StackFailed(f"the stack that runs in {config.home} does not answer: stop it (ratify down) and try again")
        time.sleep(0.1)
    missing = (config.spark and state.spark is None) or (config.kafka and state.kafka is None)
    if state.catalog.name != config.catalog or missing:
        raise StackRunning(
            f"the stack that runs in {config.home} serves the catalog {state.catalog.name} "
            f"{'with' if state.spark else 'without'} Spark and {'with' if state.kafka else 'without'} Kafka, not what is "
            "asked for. Stop it first: ratify down"
        )
    return state


def _arguments(config: StackConfig) -> list[str]:
    """The command line that gives `_parse` this configuration back."""
    values = config.model_dump(exclude={"spark", "kafka", "jar_sets"}, exclude_none=True)
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    arguments += [f"--jar-set={name}" for name in config.jar_sets]
    arguments += ["--kafka"] if config.kafka else []
    return arguments if config.spark else [*arguments, "--no-spark"]


def _parse(arguments: list[str] | None = None) -> tuple[StackConfig, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m embedded.embedded_stack",
        description="Servers of Unity Catalog, Spark Connect and, if asked for, Kafka on this machine, until Ctrl-C.",
    )
    parser.add_argument("--home", type=Path, required=True, help="directory of all state, logs and secrets")
    parser.add_argument("--catalog", default="ratify", help="catalog to serve, and Spark's default (default ratify)")
    parser.add_argument("--jars-dir", type=Path, help="directory of the JVM jars (default <home>/jars)")
    parser.add_argument("--catalog-port", type=int, default=0, help="port of the catalog (default: a free one)")
    parser.add_argument("--spark-port", type=int, default=0, help="port of Spark Connect (default: a free one)")
    parser.add_argument("--java-home", type=Path, help="the Java to use, and no other")
    parser.add_argument("--heap-mb", type=int, default=0, help="memory of Spark's JVM (default: half, 1 to 4 GiB)")
    parser.add_argument("--unity-host", help="attach the catalog of this server instead of starting one")
    parser.add_argument("--unity-token-file", type=Path, help="file with the token for --unity-host")
    parser.add_argument("--unity-client-id", help="OAuth client as which Spark comes to --unity-host")
    parser.add_argument("--unity-secret-file", type=Path, help="file with the secret of --unity-client-id")
    parser.add_argument("--unity-spark-package", help="published connector to use, as organisation:module:revision")
    parser.add_argument("--jar-set", dest="jar_sets", action="append", help="jars for Spark (default: spark)")
    parser.add_argument("--storage-root", help="directory of the managed tables, or s3://… (default <home>/lake)")
    parser.add_argument("--s3-role-arn", help="role that the catalog assumes for storage on S3")
    parser.add_argument("--s3-endpoint", help="URL of S3 and STS, where they are not those of AWS")
    parser.add_argument("--s3-region", help="region of S3 and STS")
    parser.add_argument("--s3-credential-seconds", type=int, help="life of the credentials that engines are given for S3")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="the catalog server only")
    parser.add_argument("--kafka", action="store_true", help="a Kafka broker too")
    parser.add_argument("--kafka-port", type=int, default=0, help="port of Kafka (default: a free one)")
    parser.add_argument("--kafka-password-file", type=Path, help="file with the password that Kafka's user ratify needs")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")
    values = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    exit_with_stdin = bool(values.pop("exit_with_stdin"))
    return _absolute(StackConfig(**values)), exit_with_stdin


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit code: 0 after a stop, 3 when a stack runs in this home already, 1 when it cannot start or go on."""
    config, exit_with_stdin = _parse()
    try:
        raise_stopped_on_signals(on_stdin_end=exit_with_stdin)
        Supervisor(config, _say).run(os.getpid())
    except Stopped:
        return 0
    except StackRunning as error:
        _say(str(error))
        return _EXIT_RUNNING
    except EmbeddedError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
