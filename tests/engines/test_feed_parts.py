"""How a range of versions of a feed is divided where the table's schema, or its partitions, became others."""

from pathlib import Path

import pytest

from ratify_lakehouse.delta.feed_parts import feed_parts, partitions_known_since, values_readable_since
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.table_stream import Division, division_since
from tests.delta.written_log import WrittenTable, metadata

ADDED = {"add": {"path": "x", "dataChange": True}}
MOVED = {"add": {"path": "y", "dataChange": False}}
RENAMED = {"id": "long", "w": "string"}
WIDER = {"id": "decimal(20,0)", "v": "string", "more": "date"}
OTHER = {"id": "integer", "v": "string"}


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    made = WrittenTable(tmp_path)
    made.commit(metadata())
    made.commit(ADDED)
    return made


def opened(table: WrittenTable) -> TableLog:
    log = table.log()
    return TableLog(log, log.refresh())


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("changed", [{"columns": RENAMED}, {"columns": OTHER}, {"day": True}])
def test_versions_before_another_schema_are_compared(table: WrittenTable, changed: dict[str, object], cut: bool) -> None:
    """Also where only a checkpoint says what the schema was."""
    table.commits(3)
    table.checkpoint()
    table.commit(ADDED)
    table.commit(metadata("day") if "day" in changed else metadata(columns=changed["columns"]), MOVED)  # pyright: ignore[reportArgumentType]
    table.commit(ADDED)
    if cut:
        table.cut(3)
    parts = feed_parts(opened(table), 4, 6)
    assert (parts.ranges, parts.compared) == (((5, 6),), (4,))


def test_of_a_mapped_table_each_range_is_read_as_it_was(table: WrittenTable) -> None:
    mapped = {"delta_columnMapping_mode": "name"}
    table.commit(metadata(**mapped))
    table.commit(ADDED)
    table.commit(metadata("v", **mapped), MOVED)
    table.commit(ADDED)
    parts = feed_parts(opened(table), 3, 5)
    assert (parts.ranges, parts.compared) == (((3, 3), (4, 5)), ())
    assert [partitions_known_since(opened(table), 3, last) for last in (3, 4, 5)] == [3, 4, 4]


def test_what_says_the_same_again_divides_nothing(table: WrittenTable) -> None:
    table.commit(ADDED)
    table.commit(metadata(columns={"id": "long", "v": "string", "more": "long"}), ADDED)
    table.commit(metadata(columns={"id": "long", "v": "string", "more": "long"}, other="x"))
    parts = feed_parts(opened(table), 2, 4)
    assert (parts.ranges, parts.compared) == (((2, 4),), ())
    assert partitions_known_since(opened(table), 2, 4) == 2
    assert values_readable_since(opened(table), 2) == 2


@pytest.mark.parametrize(("change", "known_since"), [(MOVED, 3), (ADDED, 4)])
def test_since_when_the_partitions_are_what_they_are(
    table: WrittenTable, change: dict[str, object], known_since: int
) -> None:
    """A version that changes rows with the partitions has them of both. Delta reads them as they are in the latest."""
    table.commit(ADDED)
    table.commit(metadata("v"), change)
    table.commits(6)
    assert [partitions_known_since(opened(table), first, 2) for first in (1, 2)] == [known_since, known_since]
    assert partitions_known_since(opened(table), 4, 6) == 4
    assert values_readable_since(opened(table), 1) == 1


@pytest.mark.parametrize(("columns", "since"), [(WIDER, 1), (OTHER, 4), (RENAMED, 4)])
def test_since_when_the_columns_can_have_all_values(table: WrittenTable, columns: dict[str, str], since: int) -> None:
    table.commits(2)
    table.commit(metadata(columns=columns), ADDED)
    assert values_readable_since(opened(table), 1) == since


def test_a_structure_without_a_field_has_not_all_values(table: WrittenTable) -> None:
    for number, names in enumerate((("a",), ("a", "b"), ("a", "c"))):
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
        struct = {"type": "struct", "fields": fields}
        table.commit(metadata(columns={"id": "long", "v": "string", "list": {"type": "array", "elementType": struct}}))
        assert values_readable_since(opened(table), 2) == (4 if number == 2 else 2)


def test_what_a_stream_has_read_of_a_table_that_is_divided(table: WrittenTable) -> None:
    def at(version: int, *, initial: bool = False) -> Division:
        position = {"reservoirVersion": version, "index": -1, "isStartingVersion": initial}
        return division_since(opened(table), position)

    table.commit(ADDED)
    table.commits(3)
    table.commit(metadata("v"), MOVED)
    table.commit(ADDED)
    assert [at(version) for version in (2, 3, 4, 5, 6)] == [
        *(Division.UNREAD, Division.READ, Division.READ, Division.NONE, Division.NONE)
    ]
    assert at(3, initial=True) is Division.UNREAD
    assert division_since(None, {}) is division_since(opened(table), None) is Division.NONE
    table.checkpoint()
    table.cut(5)
    assert at(3) is Division.UNREAD


def test_a_version_without_its_files(table: WrittenTable) -> None:
    both = [{"cdc": table.data("SELECT 1", "changes.parquet")}, {"add": table.data("SELECT 1", "new.parquet")}]
    table.commit(both[1])
    table.commit(*both)
    table.commit(MOVED)
    log = opened(table)
    assert [log.has_files_of_changes(version) for version in (1, 2, 3, 4)] == [False, True, True, True]
    (table.folder / "new.parquet").unlink()
    # What a change file has is not looked for elsewhere.
    assert [log.has_files_of_changes(version) for version in (2, 3)] == [False, True]
    (table.folder / "changes.parquet").unlink()
    assert not log.has_files_of_changes(3)
