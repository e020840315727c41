"""A follower of a change data feed goes on across every change of its table's schema, with the images as they were."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException

from ratify_lakehouse.components.feeds import paired_changes
from ratify_lakehouse.components.feeds.audit_trail import AuditedTable, append_changes
from ratify_lakehouse.components.feeds.audit_trail_component import AuditTrail
from ratify_lakehouse.components.feeds.paired_changes import opened_log, readable
from ratify_lakehouse.engines.duckdb.layout_migration import migrate
from ratify_lakehouse.engines.spark.change_feed import read_changes
from ratify_lakehouse.errors import ChangesNotRecorded, CommitConflict, QueryMismatch
from ratify_lakehouse.table_layout import Layout
from tests.components.begun_tables import begin_trail
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]

MAPPED, PLAIN = (
    f"TBLPROPERTIES ('delta.columnMapping.mode'='{mode}', 'delta.enableChangeDataFeed'='true')" for mode in ("name", "none")
)
NONE: dict[int, str] = {}


class ReshapedTable:
    """A table that others have made, and its audit trail."""

    def __init__(
        self,
        lake: Lakehouse,
        tmp_path: Path,
        properties: str,
        columns: str = "id BIGINT, v STRING",
        rows: str = "(1, 'a'), (2, 'b')",
    ) -> None:
        # Of its own: DuckDB cannot read a schema with a column of some types.
        self.schema, name = f"s_{uuid4().hex[:10]}", f"t_{uuid4().hex[:10]}"
        lake.catalog.ensure_schemas((self.schema,))
        self.lake, self.table, self.tmp_path = lake, f"ratify.{self.schema}.{name}", tmp_path
        # Others write neither to a table with column mapping nor these times.
        make = self.run if "'name'" in properties or "NTZ" in columns else self.quick
        make(f"CREATE TABLE {{}} ({columns}) USING DELTA {properties}", f"INSERT INTO {{}} VALUES {rows}")

    def run(self, *statements: str) -> None:
        """Run statements by Spark."""
        for statement in statements:
            self.lake.run(statement.format(self.table))

    def quick(self, *statements: str) -> None:
        """Run statements however they are written."""
        for statement in statements:
            self.lake.quick(statement.format(self.table))

    def trail(self, *keys: str, from_version: int = 0) -> AuditedTable:
        name = self.table.rpartition(".")[2]
        component = AuditTrail(
            description="D",
            table=f"{self.schema}.{name}",
            keys=list(keys or ["id"]),
            external=True,
            from_version=from_version,
        )
        component.place(self.tmp_path / "audit" / f"{name}_trail")
        return component.audited

    def begin(self, *keys: str) -> None:
        """Make the trail, which has read up to here."""
        begin_trail(self.lake, self.trail(*keys))

    def append(self, *keys: str, from_version: int = 0) -> None:
        append_changes(self.lake.spark, self.trail(*keys, from_version=from_version), lambda _: NONE)

    def recorded(self) -> list[tuple[Any, ...]]:
        """Version, change and images, those of versions after the first rows."""
        sql = f"SELECT version, change, before, after FROM {self.lake.full(self.trail().trail)} WHERE version > 1 "
        return [
            (row["version"], row["change"], *(image and json.loads(image) for image in (row["before"], row["after"])))
            for row in self.lake.quick(f"{sql} ORDER BY version, key, number")
        ]


def test_columns_that_are_renamed_added_widened_and_dropped(lake: Lakehouse, tmp_path: Path) -> None:
    widening = MAPPED.replace("(", "('delta.enableTypeWidening' = 'true', ")
    columns = "id BIGINT, v STRING, i INT, n TIMESTAMP_NTZ, t TIMESTAMP"
    times = "TIMESTAMP_NTZ '2026-01-02 03:04:05.123456', TIMESTAMP '2026-01-02 03:04:05.123456Z'"
    followed = ReshapedTable(lake, tmp_path, widening, columns, f"(1, 'a', NULL, {times}), (2, 'b', NULL, NULL, NULL)")
    followed.begin()
    followed.run(
        "UPDATE {} SET v = 'A' WHERE id = 1",
        "ALTER TABLE {} RENAME COLUMN v TO w",
        "DELETE FROM {} WHERE id = 1",
        "ALTER TABLE {} ADD COLUMN x INT",
        "INSERT INTO {} VALUES (3, 'c', 4, NULL, NULL, 7)",
        "ALTER TABLE {} ALTER COLUMN i TYPE BIGINT",
        "ALTER TABLE {} DROP COLUMN w",
        "DELETE FROM {} WHERE id = 3",
    )
    followed.append()
    first = {"id": 1, "i": None, "n": "2026-01-02T03:04:05.123456", "t": "2026-01-02T03:04:05.123456Z"}
    third = {"id": 3, "i": 4, "n": None, "t": None, "x": 7}
    assert followed.recorded() == [
        (2, "update", {**first, "v": "a"}, {**first, "v": "A"}),
        # The range's last schema is the one that its images have.
        (4, "delete", {**first, "w": "A", "x": None}, None),
        (6, "insert", None, {**third, "w": "c"}),
        (9, "delete", third, None),
    ]


def test_a_replaced_table(lake: Lakehouse, tmp_path: Path) -> None:
    """One without column mapping: of another one Delta refuses it."""
    followed = ReshapedTable(lake, tmp_path, PLAIN)
    followed.begin()
    followed.quick("UPDATE {} SET v = 'A' WHERE id = 1", "INSERT INTO {} VALUES (3, NULL), (3, NULL)")
    followed.run(f"CREATE OR REPLACE TABLE {{}} USING DELTA {PLAIN} AS SELECT '1' AS id, 5 AS y")
    followed.quick("INSERT INTO {} VALUES ('k', 6)", "DELETE FROM {} WHERE id = 'k'")
    followed.append()
    rows: list[tuple[int, str | None]] = [(1, "A"), (2, "b"), (3, None), (3, None)]
    assert followed.recorded() == [
        (2, "update", {"id": 1, "v": "a"}, {"id": 1, "v": "A"}),
        *[(3, "insert", None, {"id": 3, "v": None})] * 2,
        (4, "insert", None, {"id": "1", "y": 5}),
        *((4, "delete", {"id": id_, "v": v}, None) for id_, v in rows),
        (5, "insert", None, {"id": "k", "y": 6}),
        (6, "delete", {"id": "k", "y": 6}, None),
    ]
    followed.append()
    assert len(followed.recorded()) == 10


# `test_a_replaced_table` has a feed that goes on after that; test_layout_migration.py has other partitions.
@pytest.mark.long
@pytest.mark.parametrize(
    ("properties", "by_layout"),
    [(PLAIN, True), (PLAIN, False), (MAPPED, False)],
    ids=["layout", "replaced", "mapped"],
)
def test_other_partitions(lake: Lakehouse, tmp_path: Path, properties: str, by_layout: bool) -> None:
    """Of rows that were written before, Delta's feed has NULL in what became a partition."""
    followed = ReshapedTable(lake, tmp_path, properties, "id BIGINT, day STRING", "(1, 'a')")
    followed.begin("id", "day")
    make = followed.run if properties == MAPPED else followed.quick
    make("INSERT INTO {} VALUES (2, 'b')", "UPDATE {} SET day = 'c' WHERE id = 1")
    if by_layout:
        with closing(lake.another_duckdb()) as duckdb, duckdb.session() as session:
            assert migrate(session, duckdb.catalog, duckdb.log(followed.table), followed.table, Layout(("day",)))
    else:
        made = f"CREATE OR REPLACE TABLE {{}} USING DELTA PARTITIONED BY (day) {properties} AS SELECT * FROM {{}}"
        followed.run(made.replace("{}", followed.table))
    followed.run("INSERT INTO {} VALUES (3, 'd')")
    followed.append("id", "day")
    assert followed.recorded() == [
        (2, "insert", None, {"id": 2, "day": "b"}),
        (3, "delete", {"id": 1, "day": "a"}, None),
        (3, "insert", None, {"id": 1, "day": "c"}),
        (5, "insert", None, {"id": 3, "day": "d"}),
    ]
    with pytest.raises(
        ChangesNotRecorded, match=r"partitions of .* have changed since version [45], .* read from version [45]"
    ):
        read_changes(lake.spark, followed.table, 2)


@pytest.mark.long
def test_a_wider_type(lake: Lakehouse, tmp_path: Path) -> None:
    followed = ReshapedTable(lake, tmp_path, PLAIN, "id BIGINT, v STRING, i INT", "(1, 'a', NULL)")
    followed.begin()
    followed.quick("INSERT INTO {} VALUES (3, 'c', 4)")
    followed.run(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE {} ALTER COLUMN i TYPE BIGINT",
        "INSERT INTO {} VALUES (5, 'd', 6)",
    )
    followed.append()
    assert followed.recorded() == [
        (2, "insert", None, {"id": 3, "v": "c", "i": 4}),
        (5, "insert", None, {"id": 5, "v": "d", "i": 6}),
    ]


@pytest.mark.long
def test_times_have_all_their_digits(lake: Lakehouse, tmp_path: Path) -> None:
    rows = "(TIMESTAMP_NTZ '2026-01-02 03:04:05.123456', TIMESTAMP '2026-01-02 03:04:05.123456Z')"
    followed = ReshapedTable(lake, tmp_path, PLAIN, "id TIMESTAMP_NTZ, v TIMESTAMP", rows)
    lake.create(followed.trail().trail)
    followed.append()
    (row,) = lake.quick(f"SELECT key, after FROM {lake.full(followed.trail().trail)}")
    id_ = {"id": "2026-01-02T03:04:05.123456"}
    assert (json.loads(row["key"]), json.loads(row["after"])) == (id_, {**id_, "v": "2026-01-02T03:04:05.123456Z"})


@pytest.mark.parametrize("lost", [[2, 3], pytest.param([2], marks=pytest.mark.long)], ids=["all", "the first"])
def test_changes_that_cannot_be_read_may_be_left_out(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int]
) -> None:
    followed = ReshapedTable(lake, tmp_path, PLAIN)
    followed.begin()
    followed.quick("INSERT INTO {} VALUES (3, 'c')", "INSERT INTO {} VALUES (4, 'd')")
    folder = lake.folder(followed.table)
    for version in lost:
        (added,) = (action["add"]["path"] for action in _actions(folder, version) if "add" in action)
        (folder / added).unlink()
    with pytest.raises(
        ChangesNotRecorded,
        match=rf"versions 2 to {lost[-1]}, .* cannot be read: .* are then lost, .*`from_version: {lost[-1] + 1}`",
    ):
        followed.append()
    followed.quick("INSERT INTO {} VALUES (5, 'e')")
    followed.append(from_version=4)
    assert followed.recorded() == [(4, "insert", None, {"id": 5, "v": "e"})]
    followed.quick("INSERT INTO {} VALUES (6, 'f')")
    followed.run(f"CREATE OR REPLACE TABLE {{}} (k BIGINT) USING DELTA {PLAIN}")
    with pytest.raises(QueryMismatch, match=r"no column k in version 5, which is a key of it by .* `from_version: 7`"):
        followed.append("k")
    monkeypatch.setattr(paired_changes, "MOST_COMPARED", 1)
    with pytest.raises(ChangesNotRecorded, match=r"2 of them changed rows since version 5.* `from_version: 6`"):
        followed.append("id")


def test_what_may_be_read_in_another_attempt_is_not_left_out(lake: Lakehouse, tmp_path: Path) -> None:
    followed = ReshapedTable(lake, tmp_path, PLAIN)
    log = opened_log(lake.spark, followed.table)

    def failing(reason: str) -> None:
        with readable(lake.spark, log, 1, "t"):
            raise PySparkException(reason)

    for reason in ("[FAILED_READ_FILE.NO_HINT] Encountered error", "[FAILED_READ_FILE.FILE_NOT_EXIST] It is there again"):
        with pytest.raises(PySparkException, match="FAILED_READ_FILE"):
            failing(reason)
    with pytest.raises(ChangesNotRecorded, match="`from_version: 2`"):
        failing("[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA] Others")
    followed.quick("INSERT INTO {} VALUES (3, 'c')")
    with pytest.raises(CommitConflict, match="was changed while t read its changes"):
        failing("[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA] Others")
    with readable(lake.spark, log, 1, "t"):
        pass
    followed.quick("DROP TABLE {}", f"CREATE TABLE {{}} (id BIGINT) USING DELTA {PLAIN}")
    with (
        pytest.raises(CommitConflict, match="created again while t read its changes"),
        readable(lake.spark, log, 1, "t"),
    ):
        pass


def _actions(folder: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]
