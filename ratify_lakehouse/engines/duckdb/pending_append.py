"""A pending append: rows of a group of writers, checked against the table, stored and proposed for commit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from ratify_lakehouse.column_types import type_of_delta
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.commit_requests import CommitRequest, CommitRequests
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.erasure_fence import refuse_older
from ratify_lakehouse.delta.load_ids import as_loaded, loaded_ids
from ratify_lakehouse.delta.snapshot import DataFile, Snapshot
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.parquet_files import ParquetFile, put_data_file, write_parquet
from ratify_lakehouse.errors import (
    NOTHING_COMMITTED,
    AlreadyLoaded,
    AppendFailed,
    CommitOutcomeUnknown,
    RatifyError,
    ReadBeforeErasure,
    UnsafeTable,
)
from ratify_lakehouse.sql.duckdb_sql import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Smaller files are combined into one, because each file costs readers time.
_FILE_OF_ITS_OWN = 16 << 20
_FINAL = (CommitOutcomeUnknown, AlreadyLoaded, AppendFailed, ReadBeforeErasure, UnsafeTable)


class CommittedByOther(Exception):
    """Raised by a plan: another writer has committed our commit request."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class PendingAppend:
    """Pending appends of a group of writers, which share one commit.

    The data files are written to the table's storage once, however often the commit is tried. After a lost version, a commit
    request lets writers on other machines commit them (see `ratify_lakehouse.delta.commit_requests`).

    Attributes:
        attempts: How often the append was proposed.
    """

    def __init__(
        self, con: "DuckDBPyConnection", log: DeltaLog, group: Sequence[Staged], *, exclusive: bool = False
    ) -> None:
        """`exclusive`: the append is part of a commit that does more, so no other writer may commit it."""
        self._con = con
        self._log = log
        self._group = group
        self._exclusive = exclusive
        self._loads = [load for staged in group for load in staged.loads]
        self._load_details = [dict(details) for staged in group for details in staged.load_details]
        self._table = ""
        self._files = list[DataFile]()
        self._requests: CommitRequests | None = None
        self._own: CommitRequest | None = None
        self._included = list[CommitRequest]()
        self._since = 0
        self.attempts = 0

    @property
    def requested(self) -> bool:
        """Whether another writer may commit it, because a commit request was posted."""
        return self._own is not None

    def proposal(self, snapshot: Snapshot) -> Proposal:
        """Return the proposal for the version after a snapshot.

        Raises:
            CommittedByOther: another writer committed our request; the rows are in the table.
            AlreadyLoaded, UnsafeTable, AppendFailed: see `DuckDBSession.append`.
            ReadBeforeErasure: rows of it were read before a data subject was erased.
        """
        versions = snapshot.txn_versions(self._loads)
        if loaded := loaded_ids(versions):
            self._raise_if_committed(snapshot)
            raise AlreadyLoaded(snapshot.full_name, sorted(loaded))
        for staged in self._group:
            refuse_older(snapshot, staged.fence)
            _check_columns(snapshot, staged)
        # A table that was dropped and created again has another location.
        if self._table != snapshot.uuid:
            self._table, self._files = snapshot.uuid, self._write_files()
            self._requests, self._own, self.attempts = CommitRequests(self._log.storage), None, 0
        self._included = self._requests_to_include(snapshot)
        self.attempts += 1
        loads = [*self._loads, *(load for request in self._included for load in request.loads)]
        versions = snapshot.txn_versions(loads)
        txns = as_loaded(versions, loads)
        files = [*self._files, *(file for request in self._included for file in request.files)]
        return Proposal(
            adds=files,
            txns=txns,
            parameters={"mode": "Append", "partitionBy": "[]"},
            load_details=[*self._load_details, *(details for request in self._included for details in request.load_details)],
        )

    def withdraw(self) -> None:
        """Delete the files after the catalog has refused them, unless another writer may still commit them."""
        if not self.requested:
            self._log.storage.discard(file.path for file in self._files)

    def failed(self, error: Exception) -> CommitOutcomeUnknown | None:
        """Delete the files that are not committed; return an error where these may be committed yet, in place of another."""
        if isinstance(error, NOTHING_COMMITTED):
            self.withdraw()
        if self.requested and not isinstance(error, _FINAL):
            why = "But other writers have its commit request, and one may yet commit it"
        elif self.attempts and not isinstance(error, RatifyError):
            why = "It was proposed before, and may be committed"
        else:
            return None
        return CommitOutcomeUnknown(f"{error} {why}: repeat the load; its id keeps it from being written twice.")

    def clear(self) -> None:
        """Remove the requests whose rows are in the table now."""
        if self._requests:
            self._requests.remove([*self._included, *([self._own] if self._own else [])])

    def _requests_to_include(self, snapshot: Snapshot) -> list[CommitRequest]:
        """Requests of other writers, if any are to be expected. After a lost version, this also posts one of our own."""
        if self._exclusive or self._requests is None or not self._log.contended:
            return []
        if self.attempts and self._files and not self._own:
            self._since = snapshot.version
            self._own = self._requests.post(snapshot, self._loads, self._files, self._load_details)
        return self._requests.waiting(snapshot, self._loads, lambda loads: loaded_ids(snapshot.txn_versions(loads)))

    def _raise_if_committed(self, snapshot: Snapshot) -> None:
        if self._own:
            own = {file.path for file in self._own.files}
            for version in range(self._since + 1, snapshot.version + 1):
                if any(action.get("add", {}).get("path") in own for action in self._log.actions(version)):
                    # Requests of other writers may not be in that commit.
                    self._included = []
                    raise CommittedByOther(version)

    def _write_files(self) -> list[DataFile]:
        filled = [staged for staged in self._group if staged.rows]
        small = [staged for staged in filled if staged.size < _FILE_OF_ITS_OWN]
        single = filled if len(small) == 1 else [staged for staged in filled if staged not in small]
        storage, files = self._log.storage, list[DataFile]()
        try:
            for staged in single:
                given = ParquetFile(staged.rows, staged.size, dict(staged.stats))
                files.append(put_data_file(storage, staged.parquet, given))
            if len(small) > 1:
                files.append(self._combined(small))
        except BaseException:
            # No proposal has named them.
            storage.discard(file.path for file in files)
            raise
        return files

    def _combined(self, small: Sequence[Staged]) -> DataFile:
        """Write the rows of several appends to one file."""
        combined = small[0].parquet.with_name(f"{uuid4().hex}.parquet")
        names = ", ".join(literal(str(staged.parquet)) for staged in small)
        try:
            written = write_parquet(self._con, f"FROM read_parquet([{names}], union_by_name = true)", combined)
            return put_data_file(self._log.storage, combined, written)
        finally:
            combined.unlink(missing_ok=True)


def _check_columns(snapshot: Snapshot, staged: Staged) -> None:
    """Columns are matched by name: a table may have them in another order, but must have exactly these."""
    unmatched = {field["name"].lower(): field for field in snapshot.fields}
    for name, type_ in staged.columns.items():
        field = unmatched.pop(name.lower(), None)
        found = type_of_delta(field["type"]).spark if field else None
        if field is None or found != type_:
            is_ = f"has {found}" if found else "has no such column"
            raise UnsafeTable(
                f"{snapshot.full_name}, column {name}: {type_} is to be written, but the table {is_}. Alter the table or "
                "the declaration so that both agree."
            )
        if not field["nullable"] and (nulls := staged.stats.get("nullCount", {}).get(name)):
            raise AppendFailed(f"{snapshot.full_name}, column {name}: must not be NULL, and is in {nulls:,} rows.")
    if more := sorted(field["name"] for field in unmatched.values()):
        raise UnsafeTable(
            f"{snapshot.full_name} has columns {', '.join(more)} that are not written. Alter the table or the declaration "
            "so that both agree."
        )
