"""Checkpoints of a Delta log, in all forms of PROTOCOL.md: JSON or Parquet, in one file or in parts, with sidecars."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resources.delta.snapshot import Json
from resources.delta.table_storage import TableStorage
from resources.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"

_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?(?:[0-9a-f-]{36}\.)?(parquet|json)$")


def newest_checkpoint(storage: TableStorage, latest: int) -> tuple[int, list[str]]:
    """Return the version of the newest checkpoint up to `latest`, and its files; version -1 if there is none."""
    found = dict[int, list[tuple[str, int]]]()
    for name in storage.names(LOG):
        if (match := _CHECKPOINT.match(name)) and int(match[1]) <= latest:
            found.setdefault(int(match[1]), []).append((name, int(match[3] or 1)))
    for version, names in sorted(found.items(), reverse=True):
        parts = max(parts for _, parts in names)
        if len(names) < parts:
            continue
        return version, [f"{LOG}/{name}" for name, _ in (names if parts > 1 else names[:1])]
    return -1, []


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
