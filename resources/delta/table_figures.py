"""The figures of a table that say whether it needs maintenance."""

import re
from dataclasses import dataclass

from resources.catalog.unity_catalog import UnityCatalog
from resources.delta.delta_log import DeltaLog
from resources.delta.log_checkpoints import LOG, newest_checkpoint
from resources.delta.snapshot import Json
from resources.delta.table_storage import TableStorage

_COMMIT = re.compile(r"^(\d{20})\.json$")


@dataclass(frozen=True)
class TableFigures:
    """A table at one version.

    Attributes:
        version: The version.
        files: Its data files.
        bytes: Of these.
        small_files: Those of less than half the target size.
        deletion_vectors: Files with deleted rows.
        deleted_rows: How many rows they still have.
        log_versions: Versions in the log's folder.
        since_checkpoint: Versions after the newest checkpoint, which every reader reads one by one.
        unpublished: Commits that only the catalog knew, before this look published them.
    """

    version: int
    files: int
    bytes: int
    small_files: int
    deletion_vectors: int
    deleted_rows: int
    log_versions: int
    since_checkpoint: int
    unpublished: int


def table_figures(catalog: UnityCatalog, log: DeltaLog, full_name: str, target_bytes: int) -> TableFigures:
    """Return the figures of a managed table.

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
    vectors: list[Json] = [file.add["deletionVector"] for file in files if file.has_deletion_vector]
    checkpoint, _ = newest_checkpoint(log.storage, snapshot.version)
    return TableFigures(
        version=snapshot.version,
        files=len(files),
        bytes=sum(file.add["size"] for file in files),
        small_files=sum(file.add["size"] < target_bytes // 2 for file in files),
        deletion_vectors=len(vectors),
        deleted_rows=sum(vector.get("cardinality") or 0 for vector in vectors),
        log_versions=sum(bool(_COMMIT.match(name)) for name in log.storage.names(LOG)),
        since_checkpoint=snapshot.version - checkpoint,
        unpublished=unpublished,
    )
