"""Compaction of a managed table: small files become larger ones, and deleted rows go, by commits that change no row.

Each bin of files is one commit of `remove` and `add` actions with `dataChange` false, so streams and change feeds skip it. A
killed run leaves a valid table, with the bins that were committed; `ratify clean` finds the file that was not.
"""

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.compaction_bins import DELETED_RATIO, TARGET_BYTES, Bin, bins_of
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.maintenance_rules import Maintenance, maintenance_rules
from ratify_lakehouse.delta.snapshot import Snapshot, file_key
from ratify_lakehouse.delta.table_features import refuse_unsupported_features
from ratify_lakehouse.engines.duckdb.bin_rewriting import Rewritten, rewrite
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.row_order import AS_THEY_COME, RowOrder
from ratify_lakehouse.errors import NOTHING_COMMITTED, CommitConflict, UnsafeTable
from ratify_lakehouse.scratch_folders import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

_PLANS = 10


@dataclass(frozen=True)
class CompactedBin:
    """One commit of a compaction: the files and bytes before and after, the deleted rows dropped, and the attempts."""

    version: int
    files: int
    bytes: int
    new_files: int
    new_bytes: int
    deleted_rows: int
    attempts: int


class _BinGone(Exception):
    """Another writer has removed a file of the bin, or changed the table's columns."""


def compact(
    session: DuckDBSession,
    catalog: UnityCatalog,
    log: DeltaLog,
    full_name: str,
    *,
    target_bytes: int = TARGET_BYTES,
    order: RowOrder = AS_THEY_COME,
    deleted_ratio: float = DELETED_RATIO,
) -> list[CompactedBin]:
    """Write the small files of a table into files of about the target size; return the commits.

    Args:
        session: Its memory limit bounds what a bin takes.
        catalog: The table's catalog.
        log: The table's log.
        full_name: The table.
        target_bytes: Files of less than half of this are small.
        order: Of the rows of each new file, which lets readers skip more of it.
        deleted_ratio: Larger files are rewritten if more than this part of their rows is deleted.

    Raises:
        UnsafeTable: the catalog does not permit it, or the table has column mapping or an unsupported feature.
        CommitConflict: other writers rewrote its files before each of several plans; earlier commits stay.
        Whatever `rewrite` and `DeltaLog.commit` raise.
    """
    if target_bytes < 1:
        raise UnsafeTable(f"{full_name}: the target size is {target_bytes} bytes; give one of at least 1.")
    maintenance_rules(catalog, full_name).require(Maintenance.COMPACT)
    done = list[CompactedBin]()
    for _ in range(_PLANS):
        try:
            with scratch_folder(session.home) as folder:
                _Compaction(session, log, (target_bytes, deleted_ratio), order, folder).run(done)
        except _BinGone:
            continue
        return done
    raise CommitConflict(
        f"Other writers rewrote files of {full_name} before each of {_PLANS} plans; {len(done)} commits were made. Call "
        "again when they have finished."
    )


class _Compaction:
    """The bins of one version, each committed after whatever others commit meanwhile."""

    def __init__(
        self, session: DuckDBSession, log: DeltaLog, limits: tuple[int, float], order: RowOrder, folder: "Path"
    ) -> None:
        self._con, self._log, self._folder = session.con, log, folder
        self._planned = log.refresh()
        refuse_unsupported_features(self._planned, partitioned=True)
        names = {field["name"].lower(): field["name"] for field in self._planned.fields}
        if unknown := [column for column in order.columns if column.lower() not in names]:
            raise UnsafeTable(
                f"{self._planned.full_name} has no column {', '.join(unknown)} to sort by: use {', '.join(names)}."
            )
        in_files = [names[column.lower()] for column in order.columns]
        self._order = replace(order, columns=tuple(name for name in in_files if name not in self._planned.partition_columns))
        self._bins = bins_of(log.files(self._planned), *limits)
        self._checked = self._planned.version
        self._removed = set[tuple[str, str]]()

    def run(self, done: list[CompactedBin]) -> None:
        """Rewrite and commit each bin, and append it to `done`."""
        for bin_ in self._bins:
            # Before the work, too: a bin that another writer has rewritten need not be read.
            self._check(self._log.refresh(), bin_)
            done.append(self._commit(bin_))

    def _commit(self, bin_: Bin) -> CompactedBin:
        rewritten = rewrite(self._con, self._log.storage, self._planned, bin_, self._order, self._folder)
        new = [rewritten.file] if rewritten.file else []

        def plan(snapshot: Snapshot) -> Proposal:
            self._check(snapshot, bin_)
            return _proposal(bin_, rewritten, self._order)

        try:
            committed = self._log.commit(plan, partitioned=True)
        except (*NOTHING_COMMITTED, _BinGone):
            # After any other error, a ratified commit may name the file.
            self._log.storage.discard(file.path for file in new)
            raise
        size = sum(file.size for file in new)
        return CompactedBin(
            committed.version, len(bin_.files), bin_.size, len(new), size, rewritten.deleted_rows, committed.attempts
        )

    def _check(self, snapshot: Snapshot, bin_: Bin) -> None:
        """Rows that others append meanwhile are no conflict; a bin whose files are not all live any more is one."""
        if snapshot.uuid != self._planned.uuid:
            raise _BinGone
        try:
            while self._checked < snapshot.version:
                for action in self._log.actions(self._checked + 1):
                    if "metaData" in action or "protocol" in action:
                        raise _BinGone
                    if remove := action.get("remove"):
                        self._removed.add(file_key(remove))
                self._checked += 1
        except FileNotFoundError:
            # A checkpoint covers those versions, and the log has lost them.
            raise _BinGone from None
        if bin_.keys & self._removed:
            raise _BinGone


def _proposal(bin_: Bin, rewritten: Rewritten, order: RowOrder) -> Proposal:
    sizes = [rewritten.file.size] if rewritten.file else [0]
    # As Delta's OPTIMIZE writes them.
    spread = dict.fromkeys(("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"), sizes[0])
    return Proposal(
        adds=[rewritten.file] if rewritten.file else [],
        removes=bin_.files,
        operation="OPTIMIZE",
        parameters={
            "predicate": "[]",
            "auto": "false",
            "clusterBy": "[]",
            "zOrderBy": json.dumps(order.columns if order.z_order else []),
            **({"sortBy": ", ".join(order.columns)} if order.columns and not order.z_order else {}),
        },
        metrics={
            "numRemovedFiles": len(bin_.files),
            "numRemovedBytes": bin_.size,
            "numAddedFiles": 1 if rewritten.file else 0,
            "numAddedBytes": sizes[0],
            "numDeletionVectorsRemoved": sum(file.has_deletion_vector for file in bin_.files),
            **spread,
        },
        data_change=False,
        counted=rewritten.counted,
    )
