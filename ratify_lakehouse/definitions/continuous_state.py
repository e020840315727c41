"""The process that runs a table's streams: its options, and the state that it publishes for other processes."""

import datetime as dt
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from ratify_lakehouse.durable_files import hold, holder, write_durably
from ratify_lakehouse.errors import StreamBusy
from ratify_lakehouse.settings import Settings

_STATE = ".continuous.json"


class ContinuousOptions(BaseModel):
    """How the streams run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: float = Field(default=10, ge=0.1, description="Seconds from one micro-batch to the next")
    round_seconds: float = Field(default=300, ge=1, description="Seconds from one report to Dagster to the next")
    metrics_port: int = Field(default=0, description="Port of the Prometheus metrics on 127.0.0.1; 0: any free port")


class ContinuousState(BaseModel):
    """The process that runs the streams of a table of records: where it serves its metrics, and since when."""

    table: str
    process: int
    since: dt.datetime
    metrics: str
    every: float
    ready: bool = Field(default=False, description="Whether all streams have started once")


@contextmanager
def published_state(table: str, metrics: str, every: float) -> Generator[Callable[[], None]]:
    """Hold the streams of a table of records for this process, and publish its state for the length of the block.

    The value says that the streams are ready.

    Raises:
        StreamBusy: another process runs the streams.
    """
    with hold(_lock(table)) as held:
        if not held:
            raise StreamBusy(f"The streams from {table} are already running: `ratify stream status`.")
        state = ContinuousState(
            table=table, process=os.getpid(), since=dt.datetime.now(dt.UTC), metrics=metrics, every=every
        )

        def publish(*, ready: bool) -> None:
            # In one step: another process may be reading it.
            write_durably(_state_file(table), state.model_copy(update={"ready": ready}).model_dump_json().encode())

        publish(ready=False)
        try:
            yield partial(publish, ready=True)
        finally:
            _state_file(table).unlink(missing_ok=True)


def continuous_state(table: str) -> ContinuousState | None:
    """Return the state of the process that runs a table's streams; None where none runs, or where it is just starting."""
    if holder(_lock(table)) is None:
        return None
    with suppress(FileNotFoundError, ValueError):
        return ContinuousState.model_validate_json(_state_file(table).read_text())
    return None


def running_streams() -> list[ContinuousState]:
    """Return the state of every process of this home that runs streams, by the names of their tables."""
    tables = (file.name.removesuffix(_STATE) for file in sorted(streams_folder().glob(f"*{_STATE}")))
    return [state for table in tables if (state := continuous_state(table))]


def streams_folder() -> Path:
    """Return the folder of the streams' state in RATIFY_HOME."""
    return Settings().home / "streams"


def _state_file(table: str) -> Path:
    return streams_folder() / f"{table}{_STATE}"


def _lock(table: str) -> Path:
    return streams_folder() / f"{table}.continuous.lock"
