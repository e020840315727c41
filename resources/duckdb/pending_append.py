"""What a group of writers appends to a table: checked against its columns, brought into its storage, and proposed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from resources.column_types import type_of_delta
from resources.delta.commit_actions import Proposal
from resources.delta.commit_requests import CommitRequest, CommitRequests
from resources.delta.delta_log import DeltaLog
from resources.delta.load_ids import as_loaded, as_withdrawn, loaded_ids
from resources.delta.snapshot import DataFile, Snapshot
from resources.duckdb.group_commit import Staged
from resources.duckdb.parquet_files import write_parquet
from resources.errors import AlreadyLoaded, AppendFailed, UnsafeTable
from resources.sql.duckdb_sql import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Smaller ones are brought together in one file, for readers pay for each.
_FILE_OF_ITS_OWN = 16 << 20


class CommittedByOther(Exception):
    """Raised by a plan: another writer has committed what it is for."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class PendingAppend:
    """What a group of writers appends: brought into the table's storage once, however often the commit is tried, and handed
    over to other machines' writers where those were faster (see `resources.delta.commit_requests`).

    Attributes:
        attempts: How often it was proposed.
    """

    def __init__(
        self, con: "DuckDBPyConnection", log: DeltaLog, group: Sequence[Staged], *, exclusive: bool = False
    ) -> None:
        """`alone`: it is part of a commit that does more than append, so nobody else may make it."""
        self._con = con
        self._log = log
        self._group = group
        self._exclusive = exclusive
        self._loads = [load for staged in group for load in staged.loads]
        self._table = ""
        self._files = list[DataFile]()
        self._requests: CommitRequests | None = None
        self._own: CommitRequest | None = None
        self._taken = list[CommitRequest]()
        self._since = 0
        self.attempts = 0

    @property
    def requested(self) -> bool:
        """Whether another writer may commit it."""
        return self._own is not None

    def proposal(self, snapshot: Snapshot) -> Proposal:
        """What to commit on top of a snapshot.

        Raises:
            CommittedByOther: it was handed over, and is in the table.
            AlreadyLoaded, UnsafeTable, AppendFailed: see `DuckDBSession.append`.
        """
        versions = snapshot.txn_versions(self._loads)
        if there := loaded_ids(versions):
            self._look_for_own(snapshot)
            raise AlreadyLoaded(snapshot.full_name, sorted(there))
        for staged in self._group:
            _check_columns(snapshot, staged)
        # A table that was dropped and made anew has another place.
        if self._table != snapshot.uuid:
            self._table, self._files = snapshot.uuid, self._bring()
            self._requests, self._own, self.attempts = CommitRequests(self._log.storage), None, 0
        withdrawn = [load for staged in self._group for load in staged.withdrawn]
        self._taken = self._taken_along(snapshot, shared=not withdrawn)
        self.attempts += 1
        loads = [*self._loads, *(load for request in self._taken for load in request.loads)]
        versions = snapshot.txn_versions(loads)
        before = snapshot.txn_versions(withdrawn)
        txns = as_loaded(versions, loads) | as_withdrawn(before, loaded_ids(before))
        files = [*self._files, *(file for request in self._taken for file in request.files)]
        return Proposal(adds=files, txns=txns, parameters={"mode": "Append", "partitionBy": "[]"})

    def withdraw(self) -> None:
        """Take the files away again, when the catalog has refused them and nobody else can commit them."""
        if not self.requested:
            for file in self._files:
                self._log.storage.remove(file.path)

    def clear(self) -> None:
        """Take the requests away that are in the table now."""
        if self._requests:
            self._requests.remove([*self._taken, *([self._own] if self._own else [])])

    def _taken_along(self, snapshot: Snapshot, *, shared: bool) -> list[CommitRequest]:
        """Requests of others, where there are some to be expected; and one of our own, once we have lost."""
        if self._exclusive or self._requests is None or not self._log.contended:
            return []
        if self.attempts and shared and self._files and not self._own:
            self._since, self._own = snapshot.version, self._requests.post(snapshot, self._loads, self._files)
        return self._requests.waiting(snapshot, self._loads, lambda loads: loaded_ids(snapshot.txn_versions(loads)))

    def _look_for_own(self, snapshot: Snapshot) -> None:
        if self._own:
            own = {file.path for file in self._own.files}
            for version in range(self._since + 1, snapshot.version + 1):
                if any(action.get("add", {}).get("path") in own for action in self._log.actions(version)):
                    # Those of others may not be.
                    self._taken = []
                    raise CommittedByOther(version)

    def _bring(self) -> list[DataFile]:
        filled = [staged for staged in self._group if staged.rows]
        small = [staged for staged in filled if staged.size < _FILE_OF_ITS_OWN]
        files = [
            self._put(staged.parquet, staged.rows, staged.size, staged.stats) for staged in filled if staged not in small
        ]
        if len(small) == 1:
            files.append(self._put(small[0].parquet, small[0].rows, small[0].size, small[0].stats))
        elif small:
            together = small[0].parquet.with_name(f"{uuid4().hex}.parquet")
            names = ", ".join(literal(str(staged.parquet)) for staged in small)
            try:
                written = write_parquet(self._con, f"FROM read_parquet([{names}], union_by_name = true)", together)
                files.append(self._put(together, written.rows, written.size, written.stats))
            finally:
                together.unlink(missing_ok=True)
        return files

    def _put(self, parquet: Path, rows: int, size: int, stats: Mapping[str, Any]) -> DataFile:
        path = f"duckdb-{uuid4()}.parquet"
        self._log.storage.put(parquet, path)
        return DataFile(path, rows, size, dict(stats))


def _check_columns(snapshot: Snapshot, staged: Staged) -> None:
    """Columns are known by name: a table may have them in another order, but no more and no less."""
    there = {field["name"].lower(): field for field in snapshot.fields}
    for name, type_ in staged.columns.items():
        field = there.pop(name.lower(), None)
        found = type_of_delta(field["type"]).spark if field else None
        if field is None or found != type_:
            is_ = f"has {found}" if found else "has no such column"
            raise UnsafeTable(
                f"{snapshot.full_name}, column {name}: {type_} is to be written, but the table {is_}. Alter the table or "
                "the declaration so that both agree."
            )
        if not field["nullable"] and (nulls := staged.stats.get("nullCount", {}).get(name)):
            raise AppendFailed(f"{snapshot.full_name}, column {name}: must not be NULL, and is in {nulls:,} rows.")
    if more := sorted(field["name"] for field in there.values()):
        raise UnsafeTable(
            f"{snapshot.full_name} has columns {', '.join(more)} that are not written. Alter the table or the declaration "
            "so that both agree."
        )
