"""Rows of syncs that are not what they seem: of one key, of a table that was created again, of lengths and constraints."""

import datetime as dt
from dataclasses import replace

import pytest

from ratify_lakehouse.components.syncs import sync_pass
from ratify_lakehouse.components.syncs.sync_declaration import DeletionGuards, MappedColumn, RowErrors, SyncStrategy
from ratify_lakehouse.components.syncs.sync_pass import SyncPass
from ratify_lakehouse.components.syncs.written_keys import written_keys_table
from ratify_lakehouse.errors import RowsNotConverted
from tests.components.declared_syncs import dead_letters_of, declared, names, run, stored, table
from tests.components.incremental_tables import moved
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


def test_several_keys_of_the_source_that_are_one_in_the_destination(bronze: Lakehouse) -> None:
    """Rows that have not changed are read, too, if their keys become those of changed ones."""
    source, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{source} TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') "
        "AS SELECT TIMESTAMP'2026-01-01 02:00:00Z' AS at, 'new' AS v, 2 AS n"
    )
    day = (MappedColumn("day", "at", "date"),)
    sync = declared(destination, SyncStrategy.MERGE, table(source), "day", columns=day)
    run(bronze, sync)
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (TIMESTAMP'2026-01-01 01:00:00Z', 'old', 1)")
    with pytest.raises(RowsNotConverted, match="have the same day"):
        run(bronze, sync)
    assert stored(bronze, destination) == [(dt.date(2026, 1, 1), "new", 2)]


@pytest.mark.long
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_mirror_owns_nothing_of_a_table_that_was_created_again(
    bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """Before a pass, or after it has compared the rows: it begins again then."""

    def create_again() -> None:
        bronze.quick(f"DROP TABLE ratify.bronze.{destination}")
        bronze.quick(f"CREATE TABLE ratify.bronze.{destination} AS SELECT id, id AS v FROM range(3)")

    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, id AS v FROM range(4)")
    sync = declared(destination, SyncStrategy.MIRROR, table(source), "id", guards=DeletionGuards(tracked=True))
    run(bronze, sync)
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    with moved(monkeypatch, sync_pass if meanwhile else SyncPass, "write_changes" if meanwhile else "run", create_again):
        counts = run(bronze, sync).counts
    assert (counts.inserted, counts.deleted, len(stored(bronze, destination))) == (1, 0, 4)
    # What it had written to the other one is forgotten.
    assert bronze.quick(f"SELECT id, pass_id FROM ops.{written_keys_table(sync.name)}") == [{"id": 3, "pass_id": ""}]


def test_lengths_and_constraints_are_those_of_rows(bronze: Lakehouse) -> None:
    source, destination = names()
    rows = "VALUES (1, 'abc', 1), (2, 'abcd', 1), (3, 'abc', 0), (4, NULL, NULL), (5, 'äöü', 7) AS t(id, v, n)"
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT * FROM {rows}")
    bronze.run(
        f"CREATE TABLE ratify.bronze.{destination} (n INT, v VARCHAR(3), id INT, other INT) USING DELTA "
        "TBLPROPERTIES ('delta.constraints.some' = 'n > 0', 'delta.constraints.of_others' = 'other IS NULL OR other > n')"
    )
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    with pytest.raises(RowsNotConverted, match="3 of 5 rows") as refused:
        run(bronze, sync)
    assert "column v: abcd has over 3 characters" in str(refused.value)
    assert "it violates the constraint some: n > 0" in str(refused.value)
    skipping = replace(sync, row_errors=RowErrors.SKIP)
    counts = run(bronze, skipping).counts
    assert (counts.inserted, counts.failed, dead_letters_of(bronze, skipping)) == (2, 3, 3)
    assert stored(bronze, destination, "id, v, n") == [(1, "abc", 1), (5, "äöü", 7)]
