"""Two passes of a sync at once, of which one has read an older source, in any order: the newer rows win.

By DuckDB. A pass to which the destination was right already leaves no commit, and content of files has no order.
"""

import random
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_none

from ratify_lakehouse.components.syncs import duckdb_tables, prepared_changes
from ratify_lakehouse.components.syncs.sync_declaration import SyncEngine, SyncSource, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines import conflict_retries
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.declared_syncs import declared, names, table
from tests.components.incremental_tables import SourceRows, moved, overtaken
from tests.components.test_whole_passes import Shared, shared

pytestmark = pytest.mark.server

__all__ = ["shared"]


class TwicePassed:
    """A source, its sync, and the destination. No Spark is opened: the tables are there."""

    def __init__(self, shared: Shared, root: Path, strategy: SyncStrategy, *, of_file: bool, seed: object = 0) -> None:
        self.shared, self.chance = shared, random.Random(f"{seed}/{strategy}/{of_file}")  # noqa: S311 rows, not keys
        self.source, self.destination = names()
        self.file = root / f"{self.source}.csv" if of_file else None
        shared.catalog.ensure_schemas(("bronze",))
        for name in (self.source, self.destination):
            shared.others.run(f"CREATE TABLE ratify.bronze.{name} (id BIGINT, v BIGINT) USING DELTA")
        source = SyncSource(files=str(self.file), format="csv") if of_file else table(self.source)
        keys = ["id"] if strategy.keyed else []
        self.sync = declared(self.destination, strategy, source, *keys, engine=SyncEngine.DUCKDB)
        self.now: SourceRows = []

    def becomes(self, rows: SourceRows) -> None:
        """Give the source other rows, or those that it had before."""
        self.now = rows
        if self.file:
            self.file.write_text("".join(f"{id_},{v}\n" for id_, v in (("id", "v"), *rows)))
        else:
            self.shared.others.run(f"INSERT OVERWRITE ratify.bronze.{self.source} VALUES {', '.join(map(str, rows))}")

    def change(self) -> None:
        self.becomes([(id_, self.chance.randint(1, 3)) for id_ in (1, 2)])

    def run(self) -> Any:
        duckdb = self.shared.engines.pop()
        try:
            return pass_of(Spark(catalog=self.shared.catalog), duckdb, self.sync).run()
        finally:
            self.shared.engines.append(duckdb)

    def at_once(self, patch: pytest.MonkeyPatch) -> list[SourceRows]:
        """A pass that another one overtakes at a seam; return the rows of the source that the destination may have."""
        write = "overwrite" if self.sync.strategy is SyncStrategy.FULL else "merge_changes"
        reading = [(duckdb_tables, name) for name in ("source_text", "table_rows", write)]
        seams = [*reading, (prepared_changes, "RowConversion"), (DeltaLog, "commit")]
        return overtaken(patch, self.chance, seams, self.change, self.run, lambda: self.now)

    def stored(self) -> SourceRows:
        found = self.shared.others.run(f"SELECT id, v FROM ratify.bronze.{self.destination} ORDER BY id")
        return [(row["id"], row["v"]) for row in found]


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict_retries, "wait_random_exponential", lambda **_: wait_none())


@pytest.mark.parametrize("of_file", [False, True])
@pytest.mark.parametrize("strategy", [SyncStrategy.MERGE, SyncStrategy.FULL])
def test_older_rows_do_not_win(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strategy: SyncStrategy, *, of_file: bool
) -> None:
    one = TwicePassed(shared, tmp_path, strategy, of_file=of_file)
    one.change()
    one.run()
    for _ in range(4):
        if one.chance.random() < 0.5:
            one.change()
        accepted = one.at_once(monkeypatch)
        assert one.stored() in accepted


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("strategy", [SyncStrategy.MERGE, SyncStrategy.MIRROR, SyncStrategy.FULL])
def test_older_rows_do_not_win_at_length(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strategy: SyncStrategy, seed: int
) -> None:
    one = TwicePassed(shared, tmp_path, strategy, of_file=seed % 2 == 0, seed=seed)
    one.change()
    for _ in range(12):
        one.change()
        accepted = one.at_once(monkeypatch)
        assert one.stored() in accepted


@pytest.mark.parametrize("of_file", [False, True])
def test_rows_that_were_right_already_are_not_undone(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, of_file: bool
) -> None:
    """The source was changed, and changed back, and the first pass has read it in between."""
    one = TwicePassed(shared, tmp_path, SyncStrategy.MIRROR, of_file=of_file)
    one.becomes([(1, 1)])
    one.run()
    one.becomes([(1, 2)])

    def another() -> None:
        one.becomes([(1, 1)])
        assert one.run().commit is None

    with moved(monkeypatch, duckdb_tables, "merge_changes", another):
        done = one.run()
    assert (one.stored(), done.counts.updated, done.versions) == ([(1, 1)], 2, [2, 3])


@pytest.mark.parametrize(
    "seam",
    [
        *((duckdb_tables, name) for name in ("source_text", "table_rows", "merge_changes")),
        (prepared_changes, "RowConversion"),
    ],
    ids=["source_text", "table_rows", "merge_changes", "RowConversion"],
)
def test_no_version_has_older_content_of_a_file(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seam: Any
) -> None:
    """Not even until the pass is made once more."""
    one = TwicePassed(shared, tmp_path, SyncStrategy.MERGE, of_file=True)
    one.becomes([(1, 1)])
    one.run()
    one.becomes([(1, 2)])

    def another() -> None:
        one.becomes([(1, 3)])
        one.run()

    with moved(monkeypatch, *seam, another):
        assert one.run().commit is None
    assert one.stored() == [(1, 3)]
