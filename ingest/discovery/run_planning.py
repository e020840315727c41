"""Which runs to ask for: a function of the index, and of how the runs ended that were asked for before.

Dagster never repeats a run key, not even after a failure: a failed request is made again under a new attempt.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import zip_longest

from pydantic import BaseModel

from ingest.discovery.file_index import FileIndex, LoadRequest
from ingest.load.file_batches import batches
from resources.landing.landing_zone import LandedFile

MAX_ATTEMPTS = 3


class RunOutcome(StrEnum):
    """How the run of a request ended so far."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RUNNING = "running"


class Cursor(BaseModel):
    """What Dagster keeps for the sensor, however many files there are.

    Attributes:
        index: Name of the index.
        started_at: When discovery began (seconds since 1970).
        tick: Number of the last tick whose requests were handed over to Dagster.
    """

    index: str | None = None
    started_at: float | None = None
    tick: int = 0


class Limits(BaseModel):
    """Bounds of what is asked for.

    Attributes:
        files: Of one source in one request.
        size: Bytes of one source in one request; a file over it is a batch of its own.
        requests: New ones in one tick.
        open: Requests whose runs have not succeeded; the other files wait.
    """

    files: int
    size: int
    requests: int
    open: int


def plan(
    index: FileIndex,
    sources: Sequence[str],
    outcome: Callable[[LoadRequest], RunOutcome],
    limits: Limits,
    *,
    requested: int,
    settle_seconds: float,
    now: float,
) -> list[LoadRequest]:
    """Decide which runs to ask for now, and note it in the index.

    Args:
        index: Of the landing zone.
        sources: Names of the sources.
        outcome: How the run of a request ended.
        limits: Bounds of what is asked for.
        requested: The last tick of which Dagster kept the cursor; it never saw what a later one asked for.
        settle_seconds: As in `Look`.
        now: Seconds since 1970.
    """
    tick = requested + 1
    with index.transaction():
        asked = list[LoadRequest]()
        for request in index.requests():
            asked += _repeated(index, request, outcome, tick, now)
        room = min(limits.requests, limits.open - index.counts().requests)
        new = [
            [(source, batch) for batch in batches(files, limits.files, limits.size)]
            for source in sources
            if (files := index.ready(source, settle_seconds, limits.files * max(room, 0)))
        ]
        for together in list(zip_longest(*new))[: max(room, 0)]:
            chosen: dict[str, list[LandedFile]] = dict(filter(None, together))
            asked.append(index.ask(chosen, tick, now))
    return asked


def _repeated(
    index: FileIndex, request: LoadRequest, outcome: Callable[[LoadRequest], RunOutcome], tick: int, now: float
) -> list[LoadRequest]:
    """Settle a request, give it up, go on waiting for it, or ask for it again."""
    if not request.files:
        # All have gone, or have changed and are asked for anew.
        index.settle(request)
        return []
    if request.tick >= tick:
        return [index.ask_again(request, request.attempt, tick, now)]
    ended = outcome(request)
    if ended is RunOutcome.RUNNING:
        return []
    if ended is RunOutcome.SUCCEEDED:
        index.settle(request)
    elif request.attempt < MAX_ATTEMPTS:
        return [index.ask_again(request, request.attempt + 1, tick, now)]
    else:
        index.give_up(request)
    return []
