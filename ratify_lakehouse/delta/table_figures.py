"""The figures of a table that say whether it needs maintenance."""

import re
from dataclasses import dataclass

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.compaction_bins import DELETED_RATIO, bins_of
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.log_checkpoints import LOG, newest_checkpoint
from ratify_lakehouse.delta.snapshot import Json, LiveFile
from ratify_lakehouse.delta.table_storage import TableStorage

_COMMIT = re.compile(r"^(\d{20})\.json$")


@dataclass(frozen=True)
class TableFigures:
    """A table at one version.

    Attributes:
        version: The version.
        files: Its data files.
        bytes: Of these.
        rows: That can be read, of the files whose statistics have their number.
        small_files: Those of less than half the target size.
        mergeable_files: Small files that a compaction would write into fewer ones.
        deletion_vectors: Files with deleted rows.
        deleted_rows: How many rows they still have.
        droppable_rows: Those of them that a compaction would drop.
        log_versions: Versions in the log's folder.
        since_checkpoint: Versions after the newest checkpoint, which every reader reads one by one.
        unpublished: Commits that only the catalog knew, before this look published them.
    """

    version: int
    files: int
    bytes: int
    rows: int
    small_files: int
    mergeable_files: int
    deletion_vectors: int
    deleted_rows: int
    droppable_rows: int
    log_versions: int
    since_checkpoint: int
    unpublished: int

    @property
    def megabytes(self) -> float:
        """MB of its data files."""
        return round(self.bytes / (1 << 20), 3)


def table_figures(
    catalog: UnityCatalog, log: DeltaLog, full_name: str, target_bytes: int, deleted_ratio: float = DELETED_RATIO
) -> TableFigures:
    """Return the figures of a managed table.

    Args:
        catalog: The table's.
        log: The table's.
        full_name: The table.
        target_bytes: The size of files that a compaction is to make.
        deleted_ratio: Part of the rows of a file: from here on a compaction is to drop its deleted ones.

    Raises:
        UnsafeTable, and what else `DeltaLog.refresh` and `DeltaLog.files` raise.
    """
    # Before the log, which publishes what it reads.
    loaded = catalog.load_table(full_name)
    before = TableStorage(loaded["metadata"]["location"], lambda: catalog.table_credentials(full_name))
    published = set(before.names(LOG))
    listed: list[Json] = loaded.get("commits") or []
    unpublished = sum(f"{commit['version']:020d}.json" not in published for commit in listed)
    snapshot = log.refresh()
    files = log.files(snapshot)
    bins = bins_of(files, target_bytes, deleted_ratio)
    checkpoint, _ = newest_checkpoint(log.storage, snapshot.version)
    return TableFigures(
        version=snapshot.version,
        files=len(files),
        bytes=sum(file.add["size"] for file in files),
        rows=sum(file.rows or 0 for file in files),
        small_files=sum(file.add["size"] < target_bytes // 2 for file in files),
        mergeable_files=sum(len(bin_.files) for bin_ in bins if len(bin_.files) > 1),
        deletion_vectors=sum(file.has_deletion_vector for file in files),
        deleted_rows=sum(map(_deleted_rows, files)),
        droppable_rows=sum(_deleted_rows(file) for bin_ in bins for file in bin_.files),
        log_versions=sum(bool(_COMMIT.match(name)) for name in log.storage.names(LOG)),
        since_checkpoint=snapshot.version - checkpoint,
        unpublished=unpublished,
    )


def _deleted_rows(file: LiveFile) -> int:
    vector: Json = file.add.get("deletionVector") or {}
    return vector.get("cardinality") or 0
