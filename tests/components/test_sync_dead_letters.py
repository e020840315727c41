"""Dead letters of syncs of the strategy append: each row of the source is in the destination or among them, once.

Passes and replays are killed at every step, and overtake each other. The model: what is read is a row; it fits as it is, or
only after the declaration is corrected. The destination may forget Delta's `txn`, and clocks of machines differ.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratify_lakehouse.components.syncs import dead_letter_replay, letter_variants, sync_pass
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.letter_values import letter_sql
from ratify_lakehouse.components.syncs.sync_declaration import (
    ChangeEvents,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_engines import replayed
from ratify_lakehouse.errors import RowsNotConverted
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.components.declared_syncs import dead_letters_of, declared, names, quick_lake, run, spark_pass, stored, table
from tests.components.incremental_tables import KilledPass, killed
from tests.components.inserted_letters import InsertedRows, clock, moment
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]

# What only DuckDB has to do with needs no Spark; what both do alike is tested at length by both.
by_duckdb = pytest.mark.server


def sequence(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: str, steps: int, engine: SyncEngine) -> None:
    rows = InsertedRows(lake, patch, seed, engine)
    rows.add(True, False)
    rows.run(rows.sync)
    for _ in range(steps):
        rows.step()
    rows.check_all()
    rows.check_corrected()
    print(f"{seed}: {rows.rows} rows, {dict(rows.done)}")


@by_duckdb
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_each_row_is_inserted_once(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(quick_lake, monkeypatch, f"short {seed}", 8, SyncEngine.DUCKDB)


@by_duckdb
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_each_row_is_inserted_once_at_length(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(quick_lake, monkeypatch, str(seed), 20, SyncEngine.DUCKDB)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
@pytest.mark.parametrize("seed", range(20))
def test_spark_inserts_each_row_once(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(lake, monkeypatch, str(seed), 12, SyncEngine.SPARK)


@by_duckdb
@pytest.mark.parametrize("of", ["table", "query"])
def test_a_pass_of_which_no_row_fits_moves_on(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """After the correction its rows are those of a replay, and no pass reads them again."""
    rows = InsertedRows(quick_lake, monkeypatch, "none fits")
    rows.add(True, True)
    if of == "query":
        query = TableQuery.parsed(f'SELECT id, n, "at" FROM bronze.{rows.source} WHERE id >= 0', "duckdb", "the test")
        rows.sync, rows.corrected = (replace(each, source=SyncSource(query)) for each in (rows.sync, rows.corrected))
    rows.run(rows.sync)
    rows.run(rows.sync)
    assert dead_letters_of(quick_lake, rows.sync) == 2
    rows.check_corrected()


@by_duckdb
def test_letters_of_a_pass_that_was_killed_are_those_of_the_next(
    quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = InsertedRows(quick_lake, monkeypatch, "killed")
    rows.add(True, False)
    with killed(monkeypatch, sync_pass, "store_dead_letters", after=True, calls=1), pytest.raises(KilledPass):
        rows.run(rows.sync)
    # It is not known that the pass has ended: its rows wait until the next one has committed, which inserts them.
    rows.replay(rows.corrected)
    assert dead_letters_of(quick_lake, rows.sync) == 1
    rows.add(True)
    rows.run(rows.corrected)
    rows.check_arrived()


@by_duckdb
def test_a_claim_is_finished_as_it_was_begun(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what fits is different when it is finished."""
    rows = InsertedRows(quick_lake, monkeypatch, "claim")
    rows.wait("1.5", "1.5")
    with killed(monkeypatch, dead_letter_replay, "write_changes", after=True, calls=1), pytest.raises(KilledPass):
        rows.replay(rows.corrected)
    rows.replay(rows.sync)
    rows.check_arrived()


@by_duckdb
def test_letters_that_do_not_fit_yet_stay(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = InsertedRows(quick_lake, monkeypatch, "some fit")
    rows.wait("1.5", None)
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{rows.destination}_2 (id INT, n INT NOT NULL, at TIMESTAMP) USING DELTA")
    destination = TableName("bronze", f"{rows.destination}_2")
    rows.sync, rows.corrected = (replace(each, destination=destination) for each in (rows.sync, rows.corrected))
    for fitting in (1, 0):
        found = replayed(quick_lake.spark, quick_lake.duckdb, rows.corrected)
        assert (found.replayed, found.waiting) == (fitting, 1)
    assert stored(quick_lake, destination.table) == [(0, 1, dt.datetime.fromisoformat(moment(0)))]


def of_all_kinds(lake: Lakehouse, patch: pytest.MonkeyPatch) -> tuple[InsertedRows, Callable[[str], SyncDeclaration]]:
    """A source with a row, and syncs of it and of what a text of SQL adds to it: a text that is not UTF-8, and a VARIANT."""
    # Spark takes its time for each level.
    patch.setattr(letter_variants, "LEVELS", 1)
    rows = InsertedRows(lake, patch, "types", SyncEngine.SPARK)
    rows.add(True)
    destination = f"{rows.destination}_2"
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (n INT, t BINARY, day DATE, at TIMESTAMP) USING DELTA")

    def of(values: str) -> SyncDeclaration:
        query = TableQuery.parsed(f"SELECT n, at, {values} FROM bronze.{rows.source}", "databricks", "x.sql")
        columns = (MappedColumn("t", "t"), MappedColumn("day", "v", cast="date"), MappedColumn("n", "n"))
        more = {"columns": columns, "destination": TableName("bronze", destination)}
        return replace(rows.sync, source=SyncSource(query), **more)

    return rows, of


ALL_KINDS = "CAST(X'C328' AS STRING) AS t, CAST(DATE'2026-01-02' AS VARIANT) AS v"
TOO_DEEP = "CAST(X'C328' AS STRING) AS t, parse_json('[[1]]') AS v"


def replay_without_the_source(rows: InsertedRows, sync: SyncDeclaration) -> None:
    """Whose columns are of other types by now."""
    lake = rows.lake
    lake.quick(f"DROP TABLE ratify.bronze.{rows.source}")
    lake.quick(f"CREATE TABLE ratify.bronze.{rows.source} (id BOOLEAN, n INT, other INT) USING DELTA")
    rows.replay(replace(sync, columns=(*sync.columns[:2], MappedColumn("n", "n", cast="int"))))
    at = dt.datetime.fromisoformat(moment(0))
    found = (stored(lake, sync.destination.table), dead_letters_of(lake, sync))
    assert found == ([(1, b"\xc3(", dt.date(2026, 1, 2), at)], 0)


# That a pass of Spark stores letters is in tests/components/test_synced_rows.py, too.
@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
def test_a_letter_has_the_types_and_the_values_that_its_row_had(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the source has others by now, or is not there any more; a row that no letter can hold is an error."""
    rows, of = of_all_kinds(lake, monkeypatch)
    with pytest.raises(RowsNotConverted, match=rf"1 rows .* the sync {rows.sync.name} .* VARIANT \(v\): .* to_json"):
        spark_pass(lake, of(TOO_DEEP)).plan()
    rows.run(of(ALL_KINDS))
    assert dead_letters_of(lake, rows.sync) == 1
    replay_without_the_source(rows, of(ALL_KINDS))


@pytest.mark.stack
def test_spark_replays_the_types_and_the_values_that_a_row_had(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the test before, from the letter that a pass stores."""
    rows, of = of_all_kinds(lake, monkeypatch)
    types = {"n": "decimal(3,1)", "at": "timestamp", "t": "string", "v": "variant"}
    lake.created(DEAD_LETTERS)
    row = f"SELECT CAST(1.5 AS DECIMAL(3,1)) AS n, TIMESTAMP'{moment(0)}' AS at, {ALL_KINDS}"
    rows.wait_for(types, lake.run(f"SELECT {letter_sql(types)} AS letter FROM ({row})")[0]["letter"])
    replay_without_the_source(rows, of(ALL_KINDS))


@by_duckdb
def test_an_earlier_clock_loses_no_claim(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = InsertedRows(quick_lake, monkeypatch, "clocks")
    for hours in (0, -1):
        rows.add(True)
        rows.run(rows.sync)
        with monkeypatch.context() as within:
            within.setattr(dead_letter_replay, "dt", clock(hours))
            assert replayed(quick_lake.spark, quick_lake.duckdb, rows.corrected).replayed == 1
    assert stored(quick_lake, rows.destination, "id, n") == [(0, 1), (1, 1)]


@by_duckdb
def test_the_sequence_of_an_event_stays_what_it_is(quick_lake: Lakehouse) -> None:
    """An event that is a microsecond younger than the row is applied, not taken for an older one and forgotten."""
    source, destination = names()
    quick_lake.catalog.ensure_schemas(("bronze", "ops"))
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq TIMESTAMP, n DECIMAL(3,1)) USING DELTA")
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{destination} (k STRING, seq TIMESTAMP, n INT) USING DELTA")
    quick_lake.quick(
        f"INSERT INTO ratify.bronze.{source} VALUES ('u', 'a', TIMESTAMP'{moment(0)}', 1), "
        f"('u', 'a', TIMESTAMP'{moment(1)}', 1.5)"
    )
    given = {"events": ChangeEvents("op", "seq"), "row_errors": RowErrors.SKIP, "engine": SyncEngine.DUCKDB}
    sync = declared(destination, SyncStrategy.CDC, table(source), "k", **given)
    run(quick_lake, sync)
    assert stored(quick_lake, destination) == [("a", dt.datetime.fromisoformat(moment(0)), 1)]
    quick_lake.quick(f"DROP TABLE ratify.bronze.{source}")
    corrected = replace(sync, columns=(MappedColumn("n", "n", cast="int"),))
    found = replayed(quick_lake.spark, quick_lake.duckdb, corrected)
    assert (found.replayed, found.waiting) == (1, 0)
    assert stored(quick_lake, destination) == [("a", dt.datetime.fromisoformat(moment(1)), 1)]


@by_duckdb
def test_a_line_that_was_none_is_none_later(quick_lake: Lakehouse, tmp_path: Path) -> None:
    lines_that_are_none(quick_lake, tmp_path, SyncEngine.DUCKDB)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
def test_a_line_that_was_none_is_none_later_by_spark(lake: Lakehouse, tmp_path: Path) -> None:
    lines_that_are_none(lake, tmp_path, SyncEngine.SPARK)


def lines_that_are_none(lake: Lakehouse, folder: Path, engine: SyncEngine) -> None:
    _, destination = names()
    lake.catalog.ensure_schemas(("bronze", "ops"))
    (folder / "a.csv").write_text("id,n\n1,1\n4,4,4\n5,x\n")
    source = SyncSource(files=str(folder / "a.csv"), format="csv")
    sync = declared(destination, SyncStrategy.APPEND, source, row_errors=RowErrors.SKIP, engine=engine)
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT) USING DELTA")
    lake.quick(f"CREATE TABLE ratify.bronze.{destination}_2 (id INT, n STRING) USING DELTA")
    run(lake, sync)
    assert (stored(lake, destination), dead_letters_of(lake, sync)) == ([(1, 1)], 2)
    # Nor are the files needed.
    (folder / "a.csv").unlink()
    found = replayed(lake.spark, lake.duckdb, replace(sync, destination=TableName("bronze", f"{destination}_2")))
    assert (found.replayed, found.waiting, stored(lake, f"{destination}_2")) == (1, 1, [(5, "x")])
