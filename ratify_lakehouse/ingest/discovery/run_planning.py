"""Plans which runs to request: a function of the index, and of how the runs requested before have ended.

Dagster never repeats a run key, not even after a failure: a failed request is repeated as a new attempt.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import zip_longest

from pydantic import BaseModel

from ratify_lakehouse.ingest.discovery.file_index import FileIndex, LoadRequest
from ratify_lakehouse.ingest.load.file_batches import batches
from ratify_lakehouse.landing.landing_zone import LandedFile

MAX_ATTEMPTS = 3


class RunOutcome(StrEnum):
    """How the run of a request ended so far."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RUNNING = "running"


class Cursor(BaseModel):
    """The sensor's cursor in Dagster; its size does not depend on the number of files.

    Attributes:
        index: Name of the index.
        started_at: When discovery began (seconds since 1970).
        tick: Number of the last tick whose requests Dagster received.
        compared: Name of the index whose first listing was compared with the ledger.
    """

    index: str | None = None
    started_at: float | None = None
    tick: int = 0
    compared: str | None = None


class Limits(BaseModel):
    """Bounds of what is requested.

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
    """Decide which runs to request now, and record it in the index.

    Args:
        index: Of the landing zone.
        sources: Names of the sources.
        outcome: How the run of a request ended.
        limits: Bounds of what is requested.
        requested: The last tick whose cursor Dagster stored; it never received the requests of a later one.
        settle_seconds: As in `Look`.
        now: Seconds since 1970.
    """
    tick = requested + 1
    with index.transaction():
        asked = list[LoadRequest]()
        for request in index.requests():
            asked += _repeated(index, request, outcome, tick, now)
        free = min(limits.requests, limits.open - index.counts().requests)
        new = [
            [(source, batch) for batch in batches(files, limits.files, limits.size)]
            for source in sources
            if (files := index.ready(source, settle_seconds, limits.files * max(free, 0)))
        ]
        for together in list(zip_longest(*new))[: max(free, 0)]:
            chosen: dict[str, list[LandedFile]] = dict(filter(None, together))
            asked.append(index.ask(chosen, tick, now))
    return asked


def _repeated(
    index: FileIndex, request: LoadRequest, outcome: Callable[[LoadRequest], RunOutcome], tick: int, now: float
) -> list[LoadRequest]:
    """Settle a request, give it up, wait for it, or repeat it."""
    if not request.files:
        # All are missing, or have changed and are requested again.
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
