"""Commit requests: a writer that lost a version asks the other writers of the table to commit its files.

Writers on different machines share only the catalog. One of them wins each version and all others retry, so with more
writers more work is wasted, and a slow writer may never win. Therefore a writer that has lost leaves a commit request in the
table's storage, where its data files are already, and retries; a writer that retries includes all requests that it finds.

Commit requests are only an optimization: the catalog alone decides. The load ids of a request are compared and set in the
commit that adds its files, as in a commit by its own writer, so only one of all commits that include it can be ratified.
Once a request is posted, another writer may commit it at any time, so its files must not be deleted.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from ratify_lakehouse.delta.erasure_fence import fence_of
from ratify_lakehouse.delta.snapshot import DataFile, Json, Snapshot
from ratify_lakehouse.delta.table_storage import TableStorage

REQUESTS = "_ratify/requests"
_DIGITS = 15
_NAME = re.compile(rf"^\d{{{_DIGITS}}}-[0-9a-f]{{32}}\.json$")
# Clocks of two machines may differ by as much; a writer that waits longer has to win a version itself.
_VALID_S = 600


@dataclass(frozen=True)
class CommitRequest:
    """Data files in a table's storage that wait to be committed.

    Attributes:
        path: Path of the request, relative to the table's location.
        loads: Ids of what is loaded; each becomes a Delta `txn` app id.
        files: The data files.
        fields: The table's columns when the files were written, as Delta's schema has them.
        load_details: What the commit records of the loads.
        fence: The table's when the request was posted: after an erasure, its own writer has to read the rows again.
    """

    path: str
    loads: tuple[str, ...]
    files: tuple[DataFile, ...]
    fields: Sequence[Any]
    load_details: Sequence[Json]
    fence: str


class CommitRequests:
    """The commit requests of one table."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def post(
        self, snapshot: Snapshot, loads: Sequence[str], files: Sequence[DataFile], load_details: Sequence[Json]
    ) -> CommitRequest:
        """Leave a request for the writer that commits next."""
        path = f"{REQUESTS}/{int(time.time() * 1000):0{_DIGITS}d}-{uuid4().hex}.json"
        request = CommitRequest(path, tuple(loads), tuple(files), snapshot.fields, load_details, fence_of(snapshot))
        content = {
            "loads": request.loads,
            "files": [asdict(file) for file in files],
            "fields": snapshot.fields,
            "load_details": load_details,
            "fence": request.fence,
        }
        self._storage.write(path, json.dumps(content).encode())
        return request

    def waiting(
        self, snapshot: Snapshot, own: Iterable[str], loaded: Callable[[Iterable[str]], set[str]]
    ) -> list[CommitRequest]:
        """Return the requests that may be committed on top of a snapshot.

        Args:
            snapshot: The version that the commit follows.
            own: Loads that the same commit adds already.
            loaded: Returns those of some loads that the snapshot holds; a request with one of them is obsolete and removed.
        """
        found, seen = list[CommitRequest](), set(own)
        for name in sorted(filter(_NAME.match, self._storage.names(REQUESTS))):
            path, expired = f"{REQUESTS}/{name}", abs(time.time() - int(name[:_DIGITS]) / 1000) > _VALID_S
            if expired or not (request := self._read(path)) or loaded(request.loads):
                self._storage.remove(path)
            # If the columns have changed since, the request's own writer has to write its files again.
            elif (
                seen.isdisjoint(request.loads)
                and list(request.fields) == list(snapshot.fields)
                and request.fence == fence_of(snapshot)
            ):
                found.append(request)
                seen.update(request.loads)
        return found

    def remove(self, requests: Iterable[CommitRequest]) -> None:
        """Remove requests that are no longer needed."""
        self._storage.discard(request.path for request in requests)

    def _read(self, path: str) -> CommitRequest | None:
        """A request; None if the file is invalid, or its writer or the writer that committed it has removed it."""
        try:
            content: dict[str, Any] = json.loads(self._storage.read(path))
            files = tuple(DataFile(**file) for file in content["files"])
            more = content["load_details"], content["fence"]
            return CommitRequest(path, tuple(content["loads"]), files, content["fields"], *more)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
