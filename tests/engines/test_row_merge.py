"""Changes of rows by one commit of DuckDB: rows, their ids and the change data feed are those of a model in plain Python."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.commit_history import Commit, commit_from_actions
from ratify_lakehouse.delta.computed_inputs import COMPUTED
from ratify_lakehouse.engines.duckdb import feed_reading, row_merge
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.row_merge import merge_changes, overwrite, table_rows
from ratify_lakehouse.engines.spark.merge_statements import TableChanges
from ratify_lakehouse.errors import CommitConflict, RatifyError, UnsafeTable
from ratify_lakehouse.sql.spark_sql import literal
from ratify_lakehouse.table_layout import Layout
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_table_clean import kill, log_of

pytestmark = pytest.mark.stack

FEED, TRACKING, VECTORS = "delta.enableChangeDataFeed", "delta.enableRowTracking", "delta.enableDeletionVectors"
RECORD = '{"query": "q"}'


def changes_sql(changes: dict[int, str | None], stored: dict[int, str]) -> str:
    """The changes of a table with the key `id`: a value, or None where the row is to be deleted."""
    rows = [f"({id_}, {id_}, {literal(v or '')}, {v is not None}, {id_ in stored})" for id_, v in changes.items()]
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS t(ratify_key_id, id, v, ratify_present, ratify_found)"


@dataclass
class MergedTable:
    """A table against a dictionary of its rows, and against the changes of its rows by version."""

    lake: Lakehouse
    table: TableDeclaration
    chance: random.Random
    rows: dict[int, str] = field(default_factory=dict[int, str])
    feed: Counter[tuple[Any, ...]] = field(default_factory=Counter[tuple[Any, ...]])
    ids: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    next_id: int = 0

    @property
    def tracked(self) -> bool:
        return self.table.properties[TRACKING] == "true"

    def value(self) -> str:
        return f"v{self.chance.randint(0, 10**6)}"

    def append(self) -> None:
        new = {self.next_id + n: self.value() for n in range(self.chance.randint(1, 5))}
        values = ", ".join(f"({id_}, '{v}')" for id_, v in new.items())
        select = f"SELECT id::BIGINT, v FROM (VALUES {values}) AS t(id, v)"
        append(self.lake.duckdb, self.table, select, f"load-{self.next_id}")
        self.next_id += len(new)
        self._changed(dict(new))

    def delete_by_spark(self) -> None:
        """With a deletion vector."""
        if chosen := self.chance.sample(sorted(self.rows), k=min(2, len(self.rows))):
            self.lake.run(f"DELETE FROM {self.lake.full(self.table)} WHERE id IN ({', '.join(map(str, chosen))})")
            self._changed(dict.fromkeys(chosen))

    def merge(self) -> None:
        changes = self.some_changes()
        before = self.lake.version(self.table)
        commit = self.merged(changes)
        assert (commit.version, commit.operation, commit.engine) == (before + 1, "MERGE", "DuckDB")
        found = [commit.metrics[f"numTargetRows{did}"] for did in ("Inserted", "Updated", "Deleted")]
        kinds = Counter("d" if v is None else "u" if id_ in self.rows else "i" for id_, v in changes.items())
        assert found == [kinds["i"], kinds["u"], kinds["d"]]
        assert commit.record["query"] == "q"
        self._changed(changes)

    def overwrite(self) -> None:
        new = {self.next_id + n: self.value() for n in range(self.chance.randint(0, 4))}
        self.next_id += len(new)
        rows = ", ".join(f"({id_}, '{v}')" for id_, v in new.items()) or "(0, '')"
        text = f"SELECT * FROM (VALUES {rows}) AS t(id, v){'' if new else ' WHERE false'}"
        with self.lake.duckdb.session() as session, table_rows(session, self.table) as stored:
            overwrite(session, self.table, stored, text, len(new), RECORD)
        self._changed({**dict.fromkeys(self.rows), **new})
        assert self.rows == new

    def killed_before(self) -> None:
        with kill(after_the_commit=False), closing(self.lake.another_duckdb()) as duckdb, duckdb.session() as session:
            self.merged(self.some_changes(), session)

    def killed_after(self) -> None:
        changes = self.some_changes()
        with kill(after_the_commit=True), closing(self.lake.another_duckdb()) as duckdb, duckdb.session() as session:
            self.merged(changes, session)
        self._changed(changes)

    def some_changes(self) -> dict[int, str | None]:
        """Of at least one row."""
        chosen = self.chance.sample(sorted(self.rows), k=self.chance.randint(0, len(self.rows)))
        changes: dict[int, str | None] = {id_: self.chance.choice((None, self.value())) for id_ in chosen}
        for _ in range(self.chance.randint(0 if changes else 1, 3)):
            changes[self.next_id] = self.value()
            self.next_id += 1
        return changes

    def merged(self, changes: dict[int, str | None], session: DuckDBSession | None = None) -> Commit:
        if session is None:
            with self.lake.duckdb.session() as another:
                return self.merged(changes, another)
        with table_rows(session, self.table) as stored:
            version = merge_changes(session, self.table, stored, changes_sql(changes, self.rows), RECORD)
        commit = commit_from_actions(version, session.log(self.table).actions(version))
        assert commit is not None
        return commit

    def _changed(self, changes: dict[int, str | None]) -> None:
        version = self.lake.version(self.table)
        for id_, v in changes.items():
            old = self.rows.pop(id_, None)
            kinds = ("delete",) if v is None else ("insert",) if old is None else ("update_preimage", "update_postimage")
            self.feed.update((id_, old if "pre" in kind or kind == "delete" else v, kind, version) for kind in kinds)
            if v is not None:
                self.rows[id_] = v

    def check(self) -> None:
        """Spark and DuckDB read the model's rows; a row keeps its id, and has the version of its last change."""
        ids = ", _metadata.row_id, _metadata.row_commit_version" if self.tracked else ""
        read = [tuple(row.values()) for row in self.lake.run(f"SELECT id, v{ids} FROM {self.lake.full(self.table)}")]
        assert sorted((id_, v) for id_, v, *_ in read) == sorted(self.rows.items())
        assert self.lake.stored(self.table) == sorted(self.rows.items())
        if not self.tracked:
            return
        found = {id_: tuple(more) for id_, _, *more in read}
        last = {row[0]: max(v for id_, _, _, v in self.feed if id_ == row[0]) for row in self.feed}
        assert {id_: version for id_, (_, version) in found.items()} == {id_: last[id_] for id_ in self.rows}
        assert len({row_id for row_id, _ in found.values()}) == len(found)
        for id_ in found.keys() & self.ids.keys():
            assert found[id_][0] == self.ids[id_][0], "a row has another id than before"
        self.ids = found

    def check_feed(self) -> None:
        """The feed has each change, by Spark and by DuckDB."""
        full_name = self.lake.full(self.table)
        of_spark = self.lake.run(f"SELECT id, v, _change_type c, _commit_version n FROM table_changes('{full_name}', 0)")
        assert Counter(tuple(row.values()) for row in of_spark) == self.feed
        with self.lake.duckdb.session() as session:
            found = feed_reading.read_changes(session, self.lake.duckdb.log(full_name))
            assert Counter(found.select("id, v, _change_type, _commit_version").fetchall()) == self.feed


def made(lake: Lakehouse, seed: int, **more: str) -> MergedTable:
    tracked = str(seed % 2 == 0).lower()
    properties = {VECTORS: "true", FEED: "true", TRACKING: tracked, "delta.checkpointInterval": "4"} | more
    table = MergedTable(lake, pairs(keys=("id",), properties=properties), random.Random(seed))  # noqa: S311
    lake.create(table.table)
    return table


def merge_at_random(lake: Lakehouse, seed: int, steps: int, *, each_step: bool) -> None:
    table = made(lake, seed)
    does: list[Callable[[], None]] = [
        *(table.append, table.delete_by_spark, table.merge, table.merge, table.merge),
        *(table.overwrite, table.killed_before, table.killed_after),
    ]
    for does_first in (table.append, table.append, table.delete_by_spark, table.merge):
        does_first()
    table.check()
    for _ in range(steps):
        table.chance.choice(does)()
        if each_step:
            table.check()
    table.check()
    # It has what each step changed.
    table.check_feed()


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_rows_are_as_the_model_says(lake: Lakehouse, seed: int) -> None:
    merge_at_random(lake, seed, 3, each_step=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_rows_are_as_the_model_says_at_length(lake: Lakehouse, seed: int) -> None:
    merge_at_random(lake, seed, 25, each_step=True)


def test_a_commit_follows_the_version_that_it_was_computed_against(lake: Lakehouse) -> None:
    table = made(lake, 1, **{FEED: "false"})
    table.append()
    id_ = min(table.rows)
    with lake.duckdb.session() as session, table_rows(session, table.table) as stored:
        changes = changes_sql({id_: "new"}, table.rows)
        append(lake.duckdb, table.table, "SELECT -1::BIGINT, 'between'", "between")
        files = set(log_of(lake, table.table).storage.files())
        with pytest.raises(CommitConflict, match="after version 1"):
            merge_changes(session, table.table, stored, changes, RECORD)
        left = {file.path for file in log_of(lake, table.table).storage.files()} - {file.path for file in files}
        assert not {path for path in left if path.endswith(".parquet")}, "files that nobody names stay"
    assert dict(lake.stored(table.table)) == {**table.rows, -1: "between"}
    # Now that it was read again.
    assert table.merged({id_: "new"}).version == 3
    (txn,) = [action["txn"] for action in lake.commit(table.table, 3) if "txn" in action]
    assert (txn["appId"], txn["version"]) == (COMPUTED, 3)
    (info,) = [action["commitInfo"] for action in lake.commit(table.table, 3) if "commitInfo" in action]
    assert info["isBlindAppend"] is False
    # Spark skips what it has computed against an older version.
    frame = lake.spark.query(changes_sql({id_: "old"}, table.rows))
    with pytest.raises(CommitConflict):
        lake.spark.merge_changes(table.table, TableChanges(frame), RECORD, 1)


def test_large_tables_are_written_group_by_group(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake, 2)
    for _ in range(3):
        table.append()
    monkeypatch.setattr(row_merge, "TARGET_BYTES", 1)
    ids = dict.fromkeys(table.rows, "new")
    commit = table.merged({**ids, 99: "more"})
    table._changed({**ids, 99: "more"})
    assert (commit.metrics["numTargetFilesAdded"], commit.metrics["numTargetFilesRemoved"]) == (3, 3)
    table.check()
    table.check_feed()


def test_columns_that_are_not_written_stay(lake: Lakehouse) -> None:
    lake.catalog.ensure_schemas(("bronze",))
    table = pairs(keys=("id",))
    lake.quick(f"CREATE TABLE {lake.full(table)} (x INT, id BIGINT, v STRING) USING DELTA "
               "TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")  # fmt: skip
    lake.quick(f"INSERT INTO {lake.full(table)} VALUES (7, 1, 'a'), (8, 2, 'b')")
    MergedTable(lake, table, random.Random(0), {1: "a", 2: "b"}).merged({1: "new", 2: None, 3: "c"})  # noqa: S311
    found = lake.run(f"SELECT x, id, v FROM {lake.full(table)} ORDER BY id")
    assert [tuple(row.values()) for row in found] == [(7, 1, "new"), (None, 3, "c")]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"layout": Layout(partition_by=("v",)), "writer": Engine.SPARK}, "is partitioned"),
        ({"properties": {"delta.appendOnly": "true"}}, "only allows appends"),
    ],
)
def test_what_is_not_written_to(lake: Lakehouse, declared: dict[str, Any], text: str) -> None:
    table = lake.create(pairs(**{"keys": ("id",), **declared}), "VALUES (1, 'a')")
    with pytest.raises(UnsafeTable, match=text):
        MergedTable(lake, table, random.Random(0), {1: "a"}).merged({1: "new"})  # noqa: S311
    assert lake.version(table) == 1


def test_a_file_with_other_rows_than_before_is_found(lake: Lakehouse) -> None:
    table = made(lake, 1)
    table.append()
    with mock.patch.object(row_merge.LiveRows, "rows_of", return_value=99), pytest.raises(RatifyError, match="99"):
        table.merged({min(table.rows): "new"})
    assert dict(lake.stored(table.table)) == table.rows
