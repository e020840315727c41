"""Each version of a table with a random history, as Python programs read it."""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from ratify_lakehouse.declarations import Column
from tests.components.sparkless import Sparkless
from tests.engines.opened_tables import address, delete_first_rows, lake, live, made, new, opened, tuples

__all__ = ["address", "lake", "made"]

pytestmark = pytest.mark.server
FEED = "delta.enableChangeDataFeed"


def random_history(lake: Sparkless, seed: int, steps: int) -> None:
    """Make a random history: rows appended by us and by others, written again, deleted by vectors, columns added, versions
    restored. Each version is then read as it was."""
    chance = random.Random(seed)  # noqa: S311
    feed = {FEED: "true"} if seed % 2 else {}
    table = new(lake, properties={"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "false", **feed})
    rows, name, columns = opened(lake, table), table.table_name, ["id", "v"]
    versions: list[Counter[tuple[Any, ...]]] = [Counter()]
    done = list[str]()
    while len(versions) <= steps:
        now, step, kind = Counter(versions[-1]), len(versions), chance.choice(KINDS)
        added = [(step * 10 + n, *(f"{step}.{n}" for _ in columns[1:])) for n in range(chance.randrange(1, 4))]
        files = live(lake, table)
        match kind:
            case "append":
                data = pa.table({column: [row[at] for row in added] for at, column in enumerate(columns)})
                assert rows.append(data.select(chance.sample(columns, len(columns))), load_id=f"load {step}") == step
                now.update(added)
            case "insert":
                lake.quick(f"INSERT INTO {name} SELECT * FROM (VALUES {', '.join(map(str, added))})")
                now.update(added)
            case "delete" | "update" if now and not any("deletionVector" in file for file in files):
                row = chance.choice([*now])
                what = f"DELETE FROM {name}" if kind == "delete" else f"UPDATE {name} SET v = 'new'"
                lake.quick(f"{what} WHERE id = {row[0]}")
                now.subtract([row])
                now.update([(row[0], "new", *row[2:])] if kind == "update" else [])
            case "vectors" if whole := [file for file in files if "deletionVector" not in file]:
                now.subtract(delete_first_rows(lake, table, [chance.choice(whole)], columns))
            case "column" if len(columns) < 4:
                columns.append(f"w{len(columns)}")
                with lake.duckdb.session() as session:
                    session.add_columns(table, [Column(columns[-1], "string")])
                # Restored rows had fewer columns.
                now = Counter({(*row, None): count for row, count in now.items()})
            case _:
                continue
        done.append(kind)
        versions.append(+now)
    history = (seed, done)
    for version, expected in enumerate(versions):
        found = opened(lake, table, version=version)
        assert Counter(tuples(found.arrow())) == expected, (version, history)
        assert Counter(found.polars().collect().rows()) == expected, (version, history)
    assert Counter(tuples(rows.arrow())) == versions[-1], history
    if feed and "column" not in done:
        first = chance.randrange(len(versions) - 1)
        assert net(rows.changes(first).arrow()) == difference(versions[first], versions[-1]), history


KINDS = ("append", "insert", "delete", "update", "vectors", "column")


def net(changes: pa.Table) -> Counter[tuple[Any, ...]]:
    """How many more of each row there are after the changes."""
    found = Counter[tuple[Any, ...]]()
    for *row, kind, _, _ in (tuple(change.values()) for change in changes.to_pylist()):
        found[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1
    return Counter({row: count for row, count in found.items() if count})


def difference(before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    found = Counter(after)
    found.subtract(before)
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("seed", range(2))
def test_each_version_of_a_random_history(lake: Sparkless, seed: int) -> None:
    random_history(lake, seed, 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_each_version_of_a_longer_random_history(lake: Sparkless, seed: int) -> None:
    random_history(lake, seed, 40)
