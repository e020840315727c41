"""What DuckDB reads of a feed, of logs and files as other engines write them."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.feed_reading import read_changes
from ratify_lakehouse.errors import ChangesNotRecorded, LogUnreadable, UnsafeTable
from tests.delta.written_log import WrittenTable, metadata


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    return WrittenTable(tmp_path)


class LocalSession:
    """A session of DuckDB without a catalog."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.con.execute("SET TimeZone = 'UTC'")


@pytest.fixture
def session() -> Generator[Any]:
    made = LocalSession()
    yield made
    made.con.close()


def changes(session: DuckDBSession, table: WrittenTable, *versions: int) -> list[tuple[Any, ...]]:
    """The columns of the table, what was done, and in which version."""
    found = read_changes(session, table.log(), *versions)
    return sorted(found.select("* EXCLUDE (_commit_timestamp)").fetchall(), key=lambda row: (row[-1], str(row)))


def test_a_timestamp_without_a_zone(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata(columns={"t": "timestamp_ntz", "every": {"type": "array", "elementType": "timestamp_ntz"}}))
    table.commit({"add": table.data("SELECT TIMESTAMP '2026-01-01 10:00' AS t, [t] AS every", "1.parquet")})
    ((at, every, *_),) = changes(session, table)
    assert (str(at), every) == ("2026-01-01 10:00:00", [at])


def test_a_table_that_is_partitioned_now_was_not_before(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata())
    before = table.data("SELECT 1::BIGINT AS id, 'a' AS v", "1.parquet")
    table.commit({"add": before})
    after = table.data("SELECT 2::BIGINT AS id", "2.parquet", partitionValues={"v": "b"})
    none = table.data("SELECT 3::BIGINT AS id", "3.parquet")
    table.commit(metadata("v"), {"remove": before}, {"add": after}, {"add": none})
    assert changes(session, table) == [
        (1, "a", "insert", 1),
        (1, "a", "delete", 2),
        (2, "b", "insert", 2),
        (3, None, "insert", 2),
    ]


def test_a_table_that_was_partitioned_is_not_now(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata("v"))
    before = table.data("SELECT 1::BIGINT AS id", "1.parquet", partitionValues={"V": "a"})
    table.commit({"add": before})
    table.commit(metadata(), {"remove": before}, {"add": table.data("SELECT 2::BIGINT AS id, 'b' AS v", "2.parquet")})
    assert changes(session, table) == [(1, "a", "insert", 1), (1, "a", "delete", 2), (2, "b", "insert", 2)]


def test_a_removed_file_of_which_the_partition_is_not_known(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata("v"))
    table.data("SELECT 1::BIGINT AS id", "1.parquet")
    table.commit({"remove": {"path": "1.parquet", "dataChange": True}})
    with pytest.raises(LogUnreadable, match=r"does not say which v the rows of 1\.parquet have"):
        changes(session, table)


@pytest.mark.parametrize(
    ("select", "values"),
    [('SELECT 1::BIGINT AS "col-1", \'a\' AS "col-2"', {}), ("SELECT 1::BIGINT AS id", {"col-2": "a"})],
)
def test_files_with_other_columns(session: DuckDBSession, table: WrittenTable, select: str, values: dict[str, str]) -> None:
    table.commit(metadata(delta_columnMapping_mode="name"))
    before = table.data(select, "1.parquet", partitionValues=values)
    table.commit({"add": before})
    moved = table.data("SELECT 1::BIGINT AS id, 'a' AS v", "2.parquet", dataChange=False)
    table.commit(metadata(delta_columnMapping_mode="none"), {"remove": {**before, "dataChange": False}}, {"add": moved})
    table.commit({"add": table.data("SELECT 2::BIGINT AS id, 'b' AS v", "3.parquet")})
    with pytest.raises(
        UnsafeTable, match=r"c\.s\.t, version 1: 1\.parquet has the column col-[12], which the table does not"
    ):
        changes(session, table)
    assert changes(session, table, 2) == [(2, "b", "insert", 3)]


def test_values_that_the_columns_cannot_have_now(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata(columns={"id": "long", "v": "double"}))
    before = table.data("SELECT 1::BIGINT AS id, 1.7::DOUBLE AS v", "1.parquet")
    table.commit({"add": before})
    after = table.data("SELECT 2::BIGINT AS id, 2::INTEGER AS v", "2.parquet")
    table.commit(metadata(columns={"id": "long", "v": "integer"}), {"remove": before}, {"add": after})
    table.commit({"add": table.data("SELECT 3::BIGINT AS id, 3::INTEGER AS v", "3.parquet")})
    for first in (1, 2):
        with pytest.raises(
            ChangesNotRecorded, match=r"c\.s\.t has other columns since version 3, .* read from version 3 on"
        ):
            changes(session, table, first)
    assert changes(session, table, 3) == [(3, 3, "insert", 3)]


def test_columns_that_are_not_of_the_table(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata())
    ids = '7::BIGINT AS "_row-id-col-0f", 1::BIGINT AS "_row-commit-version-col-0f"'
    changed = table.data(f"SELECT 1::BIGINT AS ID, 'a' AS v, 'delete' AS _change_type, true AS __is_cdc, {ids}", "1.parquet")
    table.commit({"cdc": changed})
    assert changes(session, table) == [(1, "a", "delete", 1)]


def test_a_merge_that_changed_no_row(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata())
    files = [table.data("SELECT 1::BIGINT AS id, 'a' AS v", f"{number}.parquet") for number in range(4)]
    table.commit({"add": files[0]})
    none = {f"numTargetRows{did}": "0" for did in ("Inserted", "Updated", "Deleted")}
    table.commit({"remove": files[0]}, {"add": files[1]}, operation="MERGE", operationMetrics=none)
    assert changes(session, table) == [(1, "a", "insert", 1)]
    # Whatever else is not known to have changed none.
    table.commit(
        {"remove": files[1]}, {"add": files[2]}, operation="MERGE", operationMetrics={**none, "numTargetRowsUpdated": "1"}
    )
    table.commit({"remove": files[2]}, {"add": files[3]}, operation="MERGE")
    table.commit(
        {"cdc": table.data("SELECT 2::BIGINT AS id, 'b' AS v, 'insert' AS _change_type", "5.parquet")},
        operation="MERGE",
        operationMetrics=none,
    )
    assert [row[2:] for row in changes(session, table, 3)] == [
        ("delete", 3),
        ("insert", 3),
        ("delete", 4),
        ("insert", 4),
        ("insert", 5),
    ]


@pytest.mark.parametrize(
    ("types", "select", "message"),
    [
        ({"v": "long"}, "SELECT 'Ada' AS v", r"Could not convert string '…' to INT64 when casting from source column v"),
        ({"v": "long"}, "SELECT {'a': 1} AS v", "Unimplemented type for cast"),
        ({"v": {"type": "struct", "fields": [{"name": "b", "type": "long"}]}}, "SELECT {'a': 1} AS v", "matching member"),
    ],
)
def test_values_that_do_not_fit(
    session: DuckDBSession, table: WrittenTable, types: dict[str, Any], select: str, message: str
) -> None:
    table.commit(metadata(columns=types))
    table.commit({"add": table.data(select, "1.parquet")})
    with pytest.raises(UnsafeTable, match=rf"DuckDB cannot read 1\.parquet of c\.s\.t, version 1: .*{message}") as raised:
        changes(session, table)
    assert str(raised.value).endswith("Read from a later version on, or read its changes with Spark.")
    assert "Ada" not in str(raised.value)


def test_a_damaged_file(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata())
    table.commit({"add": table.data("SELECT 1::BIGINT AS id, 'a' AS v", "1.parquet")})
    (table.folder / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(UnsafeTable, match=r"DuckDB cannot read 1\.parquet of c\.s\.t, version 1: "):
        changes(session, table)


def test_a_type_that_duckdb_does_not_have(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata(columns={"v": "void"}))
    with pytest.raises(
        UnsafeTable, match=r"DuckDB cannot make columns like those of c\.s\.t: .*VOID does not exist\. Read its changes"
    ):
        changes(session, table)


def test_a_version_that_is_removed_from_the_log_while_it_is_read(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata())
    table.commit({"add": table.data("SELECT 1::BIGINT AS id, 'a' AS v", "1.parquet")})
    table.commit({"add": table.data("SELECT 2::BIGINT AS id, 'b' AS v", "2.parquet")})

    def cleaned(version: int) -> list[dict[str, Any]]:
        # After the range is known, and before its versions are read.
        if version == 0:
            table.cut(2)
        return read(version)

    log = table.log()
    read, log.actions = log.actions, cleaned  # type: ignore[method-assign]
    with pytest.raises(
        ChangesNotRecorded, match=r"changes of version 1 of c\.s\.t were removed since .*: read from version 2 on"
    ):
        read_changes(session, log)
