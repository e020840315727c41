"""Which landed files to load next: a pure function of the listing and of what was asked for before.

The cursor holds what the listing showed, never a time: a file that arrives late, with an old modification time, or again
under its old name differs from what was seen and is found. It also holds the requests whose runs have not succeeded yet,
because Dagster never repeats a run key, not even after a failure: a failed request is made again under a new attempt.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest

from pydantic import BaseModel

from assets.bronze.ingest import batches
from resources.landing import LandedFile

MAX_ATTEMPTS = 3


class Outcome(StrEnum):
    """How the run of a request ended so far."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RUNNING = "running"


class Request(BaseModel):
    """A run that is asked for: files by source name, and which attempt it is."""

    files: dict[str, list[str]]
    attempt: int = 1

    @property
    def count(self) -> int:
        """Number of files."""
        return sum(len(paths) for paths in self.files.values())


class Cursor(BaseModel):
    """What the sensor remembers.

    Attributes:
        seen: Fingerprint by path, of the files that were asked for.
        open: Requests by id whose runs are not known to have succeeded.
        given_up: Requests that failed in every attempt.
    """

    seen: dict[str, str] = {}
    open: dict[str, Request] = {}
    given_up: dict[str, Request] = {}


class Plan(BaseModel):
    """What to ask for now, by request id, and what to remember."""

    requests: dict[str, Request]
    cursor: Cursor


def plan(
    cursor: Cursor,
    listing: Mapping[str, Sequence[LandedFile]],
    outcomes: Mapping[str, Outcome],
    *,
    max_files: int,
    max_bytes: int,
    max_requests: int,
) -> Plan:
    """Decide which load batches to ask for.

    Args:
        cursor: As the last tick left it.
        listing: All landed files, by source name.
        outcomes: How the open requests ended, by request id.
        max_files: Files of one source in one request at most.
        max_bytes: Bytes of one source in one request at most.
        max_requests: New requests in one tick at most; the other files stay unseen, for the next tick.
    """
    requests, still_open, given_up = _repeated(cursor, outcomes)
    new = {
        source: [file for file in files if cursor.seen.get(file.path) != file.fingerprint]
        for source, files in listing.items()
    }
    in_batches = [[(source, batch) for batch in batches(files, max_files, max_bytes)] for source, files in new.items()]
    present = {file.path for files in listing.values() for file in files}
    seen = {path: fingerprint for path, fingerprint in cursor.seen.items() if path in present}
    for together in list(zip_longest(*in_batches))[:max_requests]:
        chosen = dict(filter(None, together))
        files = [file for batch in chosen.values() for file in batch]
        request = Request(files={source: [file.path for file in batch] for source, batch in chosen.items()})
        requests[_request_id(files)] = request
        seen |= {file.path: file.fingerprint for file in files}
    return Plan(requests=requests, cursor=Cursor(seen=seen, open={**still_open, **requests}, given_up=given_up))


def _repeated(
    cursor: Cursor, outcomes: Mapping[str, Outcome]
) -> tuple[dict[str, Request], dict[str, Request], dict[str, Request]]:
    """Split the open requests into those to repeat, those to go on waiting for, and those that failed for good."""
    again, waiting, given_up = dict[str, Request](), dict[str, Request](), dict(cursor.given_up)
    for key, request in cursor.open.items():
        outcome = outcomes.get(key, Outcome.RUNNING)
        if outcome is Outcome.RUNNING:
            waiting[key] = request
        elif outcome is Outcome.FAILED and request.attempt < MAX_ATTEMPTS:
            again[key] = request.model_copy(update={"attempt": request.attempt + 1})
        elif outcome is Outcome.FAILED:
            given_up[key] = request
    return again, waiting, given_up


def _request_id(files: Sequence[LandedFile]) -> str:
    content = "\n".join(f"{file.path}@{file.fingerprint}" for file in files)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
