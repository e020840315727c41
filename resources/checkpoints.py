"""Where streams keep how far they are: a folder for each table that a stream writes, and in it one for each start from nothing.

The name of the inner folder marks the stream's transactions in its tables (Delta's txn app id). The numbers of its batches
begin anew with a new checkpoint, and with the mark of the old one Delta would take them for batches that it has already.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import fsspec

from resources.settings import Settings
from resources.tables import TableDeclaration

_MARK = "_ratify"


@dataclass(frozen=True)
class Checkpoint:
    """One start of a stream: its name, which no other has, and its folder as Spark knows it."""

    name: str
    url: str


def current(table: TableDeclaration) -> Checkpoint | None:
    """Return the checkpoint of the stream into a table; None where there is none, or none any more."""
    fs, folder = _folder(table)
    marks = fs.glob(f"{folder}/*/{_MARK}")
    names = sorted(mark.rstrip("/").split("/")[-2] for mark in marks)
    return _checkpoint(table, names[-1]) if names else None


def begin(table: TableDeclaration) -> Checkpoint:
    """Make a new checkpoint, at which nothing has been read yet, the current one."""
    fs, folder = _folder(table)
    name = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%f}"
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


def _folder(table: TableDeclaration) -> tuple[fsspec.AbstractFileSystem, str]:
    root = Settings().checkpoints
    fs, path = fsspec.url_to_fs(root if "://" in root else str(Path(root).absolute()))
    return fs, f"{path}/{table.layer}.{table.name}"
