"""The local files of a sync's source: which there are, what each is known by, and which columns they have."""

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.errors import RowsNotConverted, SyncRefused
from ratify_lakehouse.sql.duckdb_sql import literal


class Inserted(Protocol):
    """Says what a sync of the strategy append has inserted before."""

    def __call__(self, inputs: Mapping[str, InputVersion], not_before: float = 0) -> int | None:
        """Return up to which version of such a source the rows were inserted; None if none were.

        `not_before`: the time, in seconds since 1970, before which there was no such source.
        """
        ...


def are_local(sync: SyncDeclaration) -> bool:
    """Whether this process reads the files of a sync's source itself, and so knows their content."""
    return "://" not in sync.source.files


def local_files(sync: SyncDeclaration) -> list[Path]:
    """Return the local files of a sync's source.

    Raises:
        SyncRefused: there are none.
    """
    pattern = Path(sync.source.files).expanduser()
    found = sorted(pattern.parent.glob(pattern.name))
    if not found:
        raise SyncRefused(f"There is no file at {sync.source.files}, the source of the sync {sync.name}.")
    return found


def filled_files(sync: SyncDeclaration) -> list[Path]:
    """Return the local files of a sync's source without empty ones, which have no columns; all if all are empty.

    Raises:
        SyncRefused: there are none.
    """
    found = local_files(sync)
    return [path for path in found if path.stat().st_size] or found


def file_inputs(sync: SyncDeclaration, files: Sequence[Path]) -> dict[str, InputVersion]:
    """Return what files are known by, by the name of the source: their content, if they are local."""
    return {f"file:{sync.source.files}": _content_of(files) if are_local(sync) else InputVersion("", -1)}


def new_files(sync: SyncDeclaration, inserted: Inserted) -> dict[Path, dict[str, InputVersion]]:
    """Return those of a source's files whose rows were not inserted yet, and what each is known by: it counts for itself.

    Raises:
        SyncRefused: there are no files.
    """
    each = {path: file_inputs(sync, [path]) for path in filled_files(sync)}
    return {path: inputs for path, inputs in each.items() if inserted(inputs, path.stat().st_mtime) is None}


def by_header(sync: SyncDeclaration, files: Sequence[Path], *, blank_lines: bool) -> dict[tuple[str, ...], list[Path]]:
    """Return CSV or Parquet files by their columns, which may be in another order, and are matched by their names.

    Both engines take the columns of Parquet from one of the files, and leave out what others have beside these. Empty
    files, which have no rows, are left out.

    Args:
        sync: The sync.
        files: Its local files.
        blank_lines: Whether the engine skips blank lines before the header of a CSV file.

    Raises:
        SyncRefused: one has other columns.
        RowsNotConverted: one is no Parquet.
    """
    found = dict[tuple[str, ...], list[Path]]()
    for path in files:
        if path.stat().st_size:
            header = _parquet_columns(sync, path) if sync.source.format == "parquet" else _header(path, blank_lines)
            found.setdefault(tuple(header), []).append(path)
    names = {tuple(sorted(name.casefold() for name in header)) for header in found}
    # Columns of one name have their place alone to distinguish them.
    doubled = len(found) > 1 and any(len({*each}) < len(each) for each in names)
    if len(names) != 1 or () in found or doubled:
        each = [f"{paths[0].name} has {', '.join(header) or 'none'}" for header, paths in found.items()]
        raise SyncRefused(
            f"The files of {sync.source.files}, the source of the sync {sync.name}, do not all have the same columns: "
            f"{'; '.join(each) or 'they are empty'}."
        )
    return found


def _header(path: Path, blank_lines: bool) -> Sequence[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        lines = csv.reader(stream)
        return next((line for line in lines if line), []) if blank_lines else next(lines, [])


def _parquet_columns(sync: SyncDeclaration, path: Path) -> Sequence[str]:
    import duckdb

    try:
        with duckdb.connect() as con:
            return con.sql(f"SELECT * FROM read_parquet({literal(str(path))})").columns
    except duckdb.Error as error:
        raise RowsNotConverted(f"The source of the sync {sync.name} cannot be read: {error}") from error


def _content_of(files: Sequence[Path]) -> InputVersion:
    digest = hashlib.sha256()
    for path in files:
        digest.update(repr(path.name).encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return InputVersion(digest.hexdigest(), 0)
