"""The process that runs the streams of a home: its options, and the state that it publishes for other processes."""

import datetime as dt
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from resources.durable_files import hold, holder, write_durably
from resources.errors import StreamBusy
from resources.settings import Settings


class ContinuousOptions(BaseModel):
    """How the streams run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: float = Field(default=10, ge=0.1, description="Seconds from one micro-batch to the next")
    round_seconds: float = Field(default=300, ge=1, description="Seconds from one report to Dagster to the next")
    metrics_port: int = Field(default=0, description="Port of the Prometheus metrics on 127.0.0.1; 0: any free port")


class ContinuousState(BaseModel):
    """The process that runs the streams: where it serves its metrics, and since when."""

    process: int
    since: dt.datetime
    metrics: str
    every: float
    ready: bool = Field(default=False, description="Whether both streams have started once")


@contextmanager
def published_state(metrics: str, every: float) -> Generator[Callable[[], None]]:
    """Hold the streams of this home for this process, and publish its state for the length of the block.

    The value says that the streams are ready.

    Raises:
        StreamBusy: another process runs the streams.
    """
    with hold(streams_folder() / "continuous.lock") as held:
        if not held:
            raise StreamBusy(f"The streams of {Settings().home} run already: `ratify stream status`.")
        state = ContinuousState(process=os.getpid(), since=dt.datetime.now(dt.UTC), metrics=metrics, every=every)

        def publish(*, ready: bool) -> None:
            # In one step: another process may be reading it.
            write_durably(_state_file(), state.model_copy(update={"ready": ready}).model_dump_json().encode())

        publish(ready=False)
        try:
            yield partial(publish, ready=True)
        finally:
            _state_file().unlink(missing_ok=True)


def continuous_state() -> ContinuousState | None:
    """Return the state of the process that runs the streams; None where none runs, or where it is just starting."""
    if holder(streams_folder() / "continuous.lock") is None:
        return None
    with suppress(FileNotFoundError, ValueError):
        return ContinuousState.model_validate_json(_state_file().read_text())
    return None


def streams_folder() -> Path:
    """Return the folder of the streams' state in RATIFY_HOME."""
    return Settings().home / "streams"


def _state_file() -> Path:
    return streams_folder() / "continuous.json"
