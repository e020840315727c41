"""Checkpoints of a Delta log, in all forms of PROTOCOL.md: JSON or Parquet, in one file or in parts, with sidecars."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ratify_lakehouse.delta.snapshot import Json
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"

_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?(?:[0-9a-f-]{36}\.)?(parquet|json)$")


def complete_checkpoints(storage: TableStorage, latest: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the versions of the checkpoints up to `latest`, newest first, each with its files."""
    found = dict[int, list[tuple[str, int]]]()
    for name in storage.names(LOG):
        if (match := _CHECKPOINT.match(name)) and int(match[1]) <= latest:
            found.setdefault(int(match[1]), []).append((name, int(match[3] or 1)))
    for version, names in sorted(found.items(), reverse=True):
        parts = max(parts for _, parts in names)
        if len(names) < parts:
            continue
        yield version, [f"{LOG}/{name}" for name, _ in (names if parts > 1 else names[:1])]


def newest_checkpoint(storage: TableStorage, latest: int) -> tuple[int, list[str]]:
    """Return the version of the newest checkpoint up to `latest`, and its files; version -1 if there is none."""
    return next(complete_checkpoints(storage, latest), (-1, list[str]()))


def replayed_actions(
    storage: TableStorage, commit: Callable[[int], list[Json]], version: int, kinds: Sequence[str]
) -> Iterator[tuple[Json, int | None]]:
    """Yield the actions that a version of a table is made of: of the newest checkpoint up to it, and of each later commit.

    Args:
        storage: The table's.
        commit: Returns the actions of a version.
        version: The version.
        kinds: Of actions of the checkpoint. A commit gives all of its actions, and so does a checkpoint in JSON.

    Returns:
        Each action with the version of its commit, or None if it is of the checkpoint.

    Raises:
        FileNotFoundError: the log lacks one of the files.
        StorageUnavailable.
    """
    checkpoint, paths = newest_checkpoint(storage, version)
    while paths:
        for action in checkpoint_actions(storage, paths.pop(), (*kinds, "sidecar")):
            yield action, None
            if sidecar := action.get("sidecar"):
                paths.append(f"{SIDECARS}/{sidecar['path'].rsplit('/', 1)[-1]}")
    for number in range(checkpoint + 1, version + 1):
        yield from ((action, number) for action in commit(number))


def checkpoint_actions(storage: TableStorage, path: str, kinds: Sequence[str]) -> list[Json]:
    """Return the actions of these kinds in one file of a checkpoint. A JSON file returns all of its actions."""
    if path.endswith(".json"):
        return [json.loads(line) for line in storage.read(path).splitlines()]
    import duckdb

    with storage.downloaded(path) as local, duckdb.connect() as con:
        file = f"read_parquet({literal(str(local))})"
        columns = {name for name, *_ in con.execute(f"DESCRIBE FROM {file}").fetchall()}
        return [action for name in kinds if name in columns for action in _actions(con, file, name)]


def _actions(con: "DuckDBPyConnection", file: str, kind: str) -> list[Json]:
    fields = [name for name, *_ in con.execute(f"DESCRIBE SELECT {kind}.* FROM {file}").fetchall()]
    # What is there as JSON, too, would take most of the time.
    fields = [name for name in fields if not name.endswith("_parsed")]
    listed = ", ".join(f"{kind}.{identifier(name)}" for name in fields)
    rows = con.execute(f"SELECT {listed} FROM {file} WHERE {kind} IS NOT NULL").fetchall()
    found = (zip(fields, row, strict=True) for row in rows)
    return [{kind: {name: value for name, value in action if value is not None}} for action in found]
