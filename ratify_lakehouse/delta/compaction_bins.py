"""Which files of a table a compaction writes into one: small ones of a partition, and those with many deleted rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ratify_lakehouse.delta.snapshot import LiveFile

TARGET_BYTES = 128 << 20
DELETED_RATIO = 0.05
"""A file with a larger part of deleted rows is rewritten without them, as by Delta's optimize.maxDeletedRowsRatio."""
# Each file of a bin is open while it is rewritten.
_MOST_FILES = 500


@dataclass(frozen=True)
class Bin:
    """Files of one partition that become one file."""

    files: tuple[LiveFile, ...]

    @cached_property
    def keys(self) -> frozenset[tuple[str, str]]:
        """What identifies them within a snapshot."""
        return frozenset(file.key for file in self.files)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(file.add["size"] for file in self.files)

    @property
    def partition_values(self) -> dict[str, str | None]:
        """Those of each of them, as the log has them."""
        return self.files[0].add.get("partitionValues") or {}


def bins_of(files: Iterable[LiveFile], target_bytes: int, deleted_ratio: float = DELETED_RATIO) -> list[Bin]:
    """Return the bins of a table's files: of small files up to the target size each, and of single files with deleted rows.

    Files of less than half the target size are small. So each bin but the last of a partition has more than half of it, and
    a second compaction finds little to do. Files that an engine has clustered stay as they are.
    """
    partitions = dict[tuple[tuple[str, str | None], ...], list[LiveFile]]()
    for file in sorted(files, key=lambda file: (file.add["size"], file.path)):
        if "clusteringProvider" not in file.add:
            values: dict[str, str | None] = file.add.get("partitionValues") or {}
            partitions.setdefault(tuple(sorted(values.items())), []).append(file)
    return [made for members in partitions.values() for made in _bins(members, target_bytes, deleted_ratio)]


def _bins(files: Iterable[LiveFile], target_bytes: int, deleted_ratio: float) -> Iterable[Bin]:
    small, size = list[LiveFile](), 0
    for file in files:
        bytes_ = file.add["size"]
        if bytes_ >= target_bytes // 2:
            if _has_many_deleted_rows(file, deleted_ratio):
                yield Bin((file,))
            continue
        if small and (size + bytes_ > target_bytes or len(small) == _MOST_FILES):
            yield Bin(tuple(small))
            small, size = [], 0
        small.append(file)
        size += bytes_
    if len(small) > 1 or (small and _has_many_deleted_rows(small[0], deleted_ratio)):
        yield Bin(tuple(small))


def _has_many_deleted_rows(file: LiveFile, deleted_ratio: float) -> bool:
    if not file.has_deletion_vector:
        return False
    deleted, rows = file.add["deletionVector"].get("cardinality"), file.stats.get("numRecords")
    return not deleted or not rows or deleted > deleted_ratio * rows
