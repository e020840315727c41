"""Where streams keep how far they are: a folder for each table that a stream writes, in it one for each start from nothing.

The name of the inner folder marks the stream's transactions in its tables (Delta's txn app id). The numbers of its batches
begin anew with a new checkpoint, and with the mark of the old one Delta would take them for batches that it has already.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from resources.settings import Settings
from resources.tables import TableDeclaration

_MARK = "_ratify"
_NAME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True)
class Checkpoint:
    """One start of a stream: its name, which no other has, and its folder as Spark knows it."""

    name: str
    url: str

    @property
    def begun(self) -> dt.datetime:
        """When it was made (UTC)."""
        return dt.datetime.strptime(self.name, _NAME).replace(tzinfo=dt.UTC)


def current(table: TableDeclaration) -> Checkpoint | None:
    """Return the checkpoint of the stream into a table; None where there is none, or none any more."""
    fs, folder = _folder(table)
    names = sorted(str(mark).split("/")[-2] for mark in fs.glob(f"{folder}/*/{_MARK}"))
    return _checkpoint(table, names[-1]) if names else None


def begin(table: TableDeclaration) -> Checkpoint:
    """Make a new checkpoint, at which nothing has been read yet, the current one."""
    fs, folder = _folder(table)
    name = dt.datetime.now(dt.UTC).strftime(_NAME)
    fs.makedirs(f"{folder}/{name}", exist_ok=True)
    fs.touch(f"{folder}/{name}/{_MARK}")
    return _checkpoint(table, name)


def forget(table: TableDeclaration) -> None:
    """Delete every checkpoint of the stream into a table."""
    fs, folder = _folder(table)
    if fs.exists(folder):
        fs.rm(folder, recursive=True)


def _checkpoint(table: TableDeclaration, name: str) -> Checkpoint:
    return Checkpoint(name, f"{Settings().checkpoints}/{table.layer}.{table.name}/{name}")


def _folder(table: TableDeclaration) -> tuple[Any, str]:
    import fsspec  # pyright: ignore[reportMissingTypeStubs] it ships none

    root = Settings().checkpoints
    url = root if "://" in root else str(Path(root).absolute())
    fs, path = cast("tuple[Any, str]", fsspec.url_to_fs(url))  # pyright: ignore[reportUnknownMemberType]
    return fs, f"{path}/{table.layer}.{table.name}"
