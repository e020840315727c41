"""What a writer could not commit, for others were faster, goes into the next commit of whoever makes it.

Writers on different machines meet only in the catalog, where one wins each version and all others have to try again: the
more they are, the more of their work is in vain, and one that is slow may never win. So who has lost leaves a request beside
the table's data files, which are in the table's storage already, and tries again; and who tries again takes along all
requests that it finds.

Nothing here is needed for correctness: the loads of a request are compared and set in the commit that brings its files, as
in its own writer's, so that only one of all commits that hold it can be ratified. But from then on nobody knows when some
other writer commits it, so its files must stay where they are.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from resources.delta.snapshot import DataFile, Snapshot
from resources.delta.table_storage import TableStorage

_FOLDER = "_ratify/requests"
_DIGITS = 15
_NAME = re.compile(rf"^\d{{{_DIGITS}}}-[0-9a-f]{{32}}\.json$")
# The clocks of two machines may differ by as much; a writer that waits longer than this has to help itself.
_VALID_S = 600


@dataclass(frozen=True)
class CommitRequest:
    """Files that wait in a table's storage to be committed.

    Attributes:
        path: Where the request is, relative to the table's location.
        loads: Ids of what is loaded; each becomes a Delta `txn` app id.
        files: Those that bring its rows.
        fields: The table's columns, for which the files were made.
    """

    path: str
    loads: tuple[str, ...]
    files: tuple[DataFile, ...]
    fields: Sequence[Any]


class CommitRequests:
    """The requests for one table."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def post(self, snapshot: Snapshot, loads: Sequence[str], files: Sequence[DataFile]) -> CommitRequest:
        """Leave a request, for whoever commits next."""
        path = f"{_FOLDER}/{int(time.time() * 1000):0{_DIGITS}d}-{uuid4().hex}.json"
        request = CommitRequest(path, tuple(loads), tuple(files), snapshot.fields)
        content = {"loads": request.loads, "files": [asdict(file) for file in files], "fields": snapshot.fields}
        self._storage.write(path, json.dumps(content).encode())
        return request

    def waiting(
        self, snapshot: Snapshot, but: Iterable[str], there: Callable[[Iterable[str]], set[str]]
    ) -> list[CommitRequest]:
        """Return the requests that may be committed on top of a snapshot.

        Args:
            snapshot: The one that is built upon.
            but: Loads that the same commit brings already.
            there: Tells those of some loads that the snapshot holds; a request for one of them is over, and taken away.
        """
        found, seen = list[CommitRequest](), set(but)
        for name in sorted(filter(_NAME.match, self._storage.names(_FOLDER))):
            path, expired = f"{_FOLDER}/{name}", abs(time.time() - int(name[:_DIGITS]) / 1000) > _VALID_S
            if expired or not (request := self._read(path)) or there(request.loads):
                self._storage.remove(path)
            # Files that were made for other columns their own writer has to make again.
            elif seen.isdisjoint(request.loads) and list(request.fields) == list(snapshot.fields):
                found.append(request)
                seen.update(request.loads)
        return found

    def remove(self, requests: Iterable[CommitRequest]) -> None:
        """Take requests away that need nobody any more."""
        for request in requests:
            self._storage.remove(request.path)

    def _read(self, path: str) -> CommitRequest | None:
        """A request; None where it is none, or where its writer, or who committed it, took it away meanwhile."""
        try:
            said: dict[str, Any] = json.loads(self._storage.read(path))
            files = tuple(DataFile(**file) for file in said["files"])
            return CommitRequest(path, tuple(said["loads"]), files, said["fields"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
