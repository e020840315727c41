"""What a stack is asked to be, and what a running one says of itself in `<home>/stack.json`."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embedded.embedded_errors import StackRunning
from embedded.private_files import write_private


class StackConfig(BaseModel):
    """One stack on this machine: a catalog server and a Spark Connect server, with all their state under `home`.

    With `unity_host` no catalog server is started: Spark attaches `catalog` of that server, with the token that
    `unity_token_file` holds, or as the OAuth client `unity_client_id`, whose secret `unity_secret_file` holds. Ports of
    0 mean a free one. `jar_sets` names what Spark gets on its class path; any of the `s3_…` adds what it needs for S3.
    `storage_root`, s3://bucket/prefix or a directory, is `<home>/lake` if not given. With `kafka` there is a broker too, and
    Spark has what reads it; with `kafka_password_file` it lets in the user `ratify` only, with the password in that file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    catalog: str = "ratify"
    jars_dir: Path | None = None
    catalog_port: int = 0
    spark_port: int = 0
    java_home: Path | None = None
    unity_host: str | None = None
    unity_token_file: Path | None = None
    unity_client_id: str | None = None
    unity_secret_file: Path | None = None
    unity_spark_package: str | None = None
    jar_sets: tuple[str, ...] = ("spark",)
    storage_root: str | None = None
    s3_role_arn: str | None = None
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_credential_seconds: int | None = None
    heap_mb: int = 0
    spark: bool = True
    kafka: bool = False
    kafka_port: int = 0
    kafka_password_file: Path | None = None

    @property
    def jars(self) -> Path:
        """The directory of the jars, which several homes can share."""
        return (self.jars_dir or self.home / "jars").resolve()

    @property
    def s3(self) -> dict[str, object]:
        """The `s3_…` that are given; empty where S3 is not asked for."""
        return {name: value for name, value in self if name.startswith("s3_") and value is not None}


class CatalogState(BaseModel):
    """The catalog server; `pid` is None when it is not ours.

    `token_file` has the token that opens everything: the admin's, if the server is ours. `engine_token_file` has that
    of the service principal as which DuckDB and Dagster then work, for which `token_file` does otherwise.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    name: str
    token_file: Path
    engine_token_file: Path | None = None
    pid: int | None = None

    @property
    def port(self) -> int:
        """The port in `url`."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)


class SparkState(BaseModel):
    """The Spark Connect server, and the address for SPARK_REMOTE."""

    model_config = ConfigDict(frozen=True)

    remote: str
    pid: int

    @property
    def port(self) -> int:
        """The port in `remote`."""
        return int(self.remote.rsplit(":", 1)[1])


class KafkaState(BaseModel):
    """The Kafka broker, and the address for KAFKA_BOOTSTRAP; `password_file` where it asks for a password."""

    model_config = ConfigDict(frozen=True)

    bootstrap: str
    pid: int
    password_file: Path | None = None

    @property
    def port(self) -> int:
        """The port in `bootstrap`."""
        return int(self.bootstrap.rsplit(":", 1)[1])


class StackState(BaseModel):
    """A running stack; `pid` is its supervisor."""

    model_config = ConfigDict(frozen=True)

    pid: int = Field(gt=0)
    catalog: CatalogState
    spark: SparkState | None = None
    kafka: KafkaState | None = None


def state_file(home: Path) -> Path:
    """Where the supervisor publishes its state."""
    return home / "stack.json"


def write_state(home: Path, state: StackState) -> None:
    """Publish `state`, atomically and readable by the owner only."""
    write_private(state_file(home), state.model_dump_json(indent=2) + "\n")


def read_state(home: Path) -> StackState | None:
    """Read what was published last; whether that stack still runs is another question: see `holder`."""
    try:
        return StackState.model_validate_json(state_file(home).read_text())
    except (FileNotFoundError, ValidationError):
        return None


def hold(home: Path) -> IO[str]:
    """Take the home for this process, until the returned file is closed or the process ends.

    Raises:
        StackRunning: another process holds it.
    """
    home.mkdir(parents=True, exist_ok=True)
    lock = _lock_file(home).open("a+")
    for _ in range(20):
        # Several tries, because `holder` takes the lock for an instant whenever it looks.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock
    lock.close()
    raise StackRunning(f"a stack runs in {home} already (process {holder(home)}). Stop it first: ratify down")


def holder(home: Path) -> int | None:
    """Return the process that holds `home`; None when nobody does.

    The lock answers, not the file's content: the kernel frees it when the holder ends, so that neither a crash nor a
    process id that was given to another process can look like a running stack.
    """
    try:
        with _lock_file(home).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0)
            return None
    except FileNotFoundError:
        return None


def _lock_file(home: Path) -> Path:
    return home / "stack.lock"


def forget_stale(home: Path) -> None:
    """Remove the state that a crashed supervisor left behind; that of a running one stays."""
    if not state_file(home).exists() or holder(home) is not None:
        return
    with contextlib.suppress(StackRunning), hold(home):
        state_file(home).unlink(missing_ok=True)
