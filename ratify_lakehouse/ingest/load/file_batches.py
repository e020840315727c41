"""Load batches: which landed files are loaded together, in one commit."""

import hashlib
from collections.abc import Iterator, Sequence

from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.landing.landing_zone import LandedFile

MAX_FILES = 30
"""Files in one load batch at most, unless configured."""
MAX_BYTES = 256 * 1024 * 1024
"""Bytes in one load batch at most, unless configured."""


def batches(files: Sequence[LandedFile], max_files: int, max_bytes: int) -> Iterator[list[LandedFile]]:
    """Split files into load batches of bounded count and size, in order; a file over the bound is a batch of its own."""
    batch, size = list[LandedFile](), 0
    for file in files:
        if batch and (len(batch) >= max_files or size + file.size > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def batch_id(source: Source, files: Sequence[LandedFile]) -> str:
    """Return the id of a load batch, the same whenever the same versions of the same files are loaded together."""
    content = "\n".join(f"{file.path}@{file.fingerprint}" for file in sorted(files))
    return f"{source.table.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
