"""What a stack shall be (`StackConfig`), and what a running one publishes of itself in `<home>/stack.json`."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from filelock import Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ratify_lakehouse.embedded.embedded_errors import StackRunning
from ratify_lakehouse.embedded.file_locks import file_lock, lock_holder
from ratify_lakehouse.embedded.private_files import write_private

EXIT_RUNNING = 3
"""The exit code of a supervisor that found the home held by another one."""


class StackConfig(BaseModel):
    """One stack on this machine: a catalog server and a Spark Connect server, with all their state under `home`.

    The jars that they run are in `jars_dir`, which stacks share.

    With `unity_host` no catalog server is started: Spark attaches `catalog` of that server, with the token in
    `unity_token_file`, or as the OAuth client `unity_client_id` with the secret in `unity_secret_file`. A port of 0 means
    any free one. `jar_sets` names the jars on Spark's class path; any of the `s3_…` adds those for S3. `storage_root`,
    s3://bucket/prefix or a directory, is `<home>/lake` by default. With `kafka` a broker runs too, and Spark has the jars
    to read from it; with `kafka_password_file` it accepts the user `ratify` only, with the password in that file.
    `maintenance` is what the catalog server permits beyond commits of rows; None: all that it can, an empty one: nothing.
    `dropped_table_seconds` is how long a dropped managed table can be undropped, a week by default.

    It names files of secrets and holds none: it is handed to the supervisor as a JSON file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    jars_dir: Path
    catalog: str = "ratify"
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
    maintenance: tuple[Literal["compact", "clean", "clean_log"], ...] | None = None
    dropped_table_seconds: int | None = None
    spark: bool = True
    kafka: bool = False
    kafka_port: int = 0
    kafka_password_file: Path | None = None

    @property
    def s3(self) -> dict[str, Any]:
        """The `s3_…` that are set; empty where S3 is not used."""
        return {name: value for name, value in self if name.startswith("s3_") and value is not None}


class CatalogState(BaseModel):
    """The catalog server; `pid` is None when it is not ours.

    `token_file` holds the admin's token if the server is ours, and otherwise the one token that all engines use.
    `engine_token_file` holds the token of the service principal as which DuckDB and Dagster work on our server.
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
    """The Kafka broker, and the address for KAFKA_BOOTSTRAP; `password_file` where it requires a password."""

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


@contextlib.contextmanager
def hold(home: Path) -> Generator[None]:
    """Hold the home for this process, until the block or the process ends.

    Raises:
        StackRunning: another process holds it.
    """
    lock = file_lock(_lock_file(home))
    try:
        # Longer than the instant for which `holder` takes the lock whenever it looks.
        lock.acquire(timeout=1)
    except Timeout as error:
        raise StackRunning(f"a stack runs in {home} already (process {holder(home)}). Stop it first: ratify down") from error
    try:
        yield
    finally:
        lock.release()


def holder(home: Path) -> int | None:
    """Return the process that holds `home`; None when nobody does."""
    return lock_holder(_lock_file(home))


def _lock_file(home: Path) -> Path:
    return home / "stack.lock"


def forget_stale(home: Path) -> None:
    """Remove the state that a crashed supervisor left behind; that of a running one stays."""
    if not state_file(home).exists() or holder(home) is not None:
        return
    with contextlib.suppress(StackRunning), hold(home):
        state_file(home).unlink(missing_ok=True)
