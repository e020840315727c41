"""Passes that have read before an erasure, and come to a commit after it: what they have read is not there then.

The fence comes at the last moment: after a pass of Spark has looked for one, and before Spark has begun its statement; and
before the commit of DuckDB, which looks for one itself.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.components.syncs import dead_letter_replay
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.deleted_keys import deleted_keys_table
from ratify_lakehouse.components.syncs.sync_declaration import (
    ChangeEvents,
    DeletionGuards,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_engines import replayed
from ratify_lakehouse.components.syncs.written_keys import written_keys_table
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ReadBeforeErasure, WrittenAfterErasure
from tests.components.begun_tables import begin, planned
from tests.components.declared_syncs import declared, erase, erase_quickly, names, run, stored, table
from tests.components.incremental_tables import declared_query, moved, without_pictures
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]

ANN = 2
"""The id of whom an erasure is about."""


Erase = Callable[[Lakehouse, str, int], None]


@pytest.fixture(params=[pytest.param(erase_quickly, id="by_us"), pytest.param(erase, id="by_spark", marks=pytest.mark.long)])
def erased(request: pytest.FixtureRequest) -> Erase:
    """Deletes rows by their id, in a commit that is acknowledged."""
    return request.param


def fence(lake: Lakehouse, full_name: str) -> None:
    lake.duckdb.log(full_name).commit(fencing, partitioned=True)


BEFORE_THE_STATEMENT, BEFORE_THE_LOOK = (Spark, "_committed"), (Spark, "ensure_table")
BEFORE_THE_COMMIT = {SyncEngine.SPARK: BEFORE_THE_STATEMENT, SyncEngine.DUCKDB: (DeltaLog, "commit")}
of_both_engines = pytest.mark.parametrize(
    "engine", [SyncEngine.DUCKDB, pytest.param(SyncEngine.SPARK, marks=pytest.mark.long)]
)


@pytest.fixture
def quick_syncs(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    without_pictures(monkeypatch)
    return bronze


def source_of(lake: Lakehouse, *rows: str) -> str:
    source, _ = names()
    lake.quick(f"CREATE TABLE ratify.bronze.{source} (id INT, n DECIMAL(3,1), op STRING) USING DELTA")
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES {', '.join(rows)}")
    return source


def erasing(erased: Erase, lake: Lakehouse, source: str, table_name: str) -> Callable[[], None]:
    """An erasure, which deletes rows of the source, and fences one table, in which it finds none yet."""

    def erasure() -> None:
        erased(lake, f"ratify.bronze.{source}", ANN)
        fence(lake, f"ratify.{table_name}")

    return erasure


def ever_in(lake: Lakehouse, table_name: str, column: str, where: str = "true") -> list[Any]:
    """The values that a column has, or had in a file that a later pass has replaced."""
    files = lake.folder(f"ratify.{table_name}") / "*.parquet"
    with closing(duckdb.connect()) as con:
        found = con.execute(
            f"SELECT DISTINCT {column} FROM read_parquet('{files}', union_by_name=true) WHERE {where} ORDER BY 1"
        ).fetchall()
    return [value for (value,) in found]


def letters_of(lake: Lakehouse, sync: SyncDeclaration) -> list[str]:
    return ever_in(lake, DEAD_LETTERS.table_name, "row", f"sync = '{sync.name}'")


@pytest.mark.parametrize(
    ("engine", "strategy", "moment"),
    [
        # That Spark's statement is refused beside the fence is in `test_rows_that_were_inserted_are_named`.
        pytest.param(SyncEngine.SPARK, SyncStrategy.APPEND, BEFORE_THE_STATEMENT, marks=pytest.mark.long),
        pytest.param(SyncEngine.SPARK, SyncStrategy.MERGE, BEFORE_THE_LOOK, marks=pytest.mark.long),
        (SyncEngine.DUCKDB, SyncStrategy.APPEND, BEFORE_THE_COMMIT[SyncEngine.DUCKDB]),
        (SyncEngine.DUCKDB, SyncStrategy.MERGE, BEFORE_THE_LOOK),
    ],
)
def test_dead_letters(
    quick_syncs: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    engine: SyncEngine,
    strategy: SyncStrategy,
    moment: Any,
    erased: Erase,
) -> None:
    lake, (_, destination) = quick_syncs, names()
    source = source_of(lake, "(1, 1, 'u')", f"({ANN}, 1.5, 'u')", "(3, 2.5, 'u')")
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT) USING DELTA")
    lake.spark.ensure_table(DEAD_LETTERS)
    keys = ["id"] if strategy.keyed else []
    given = {"row_errors": RowErrors.SKIP, "only_mapped": True, "engine": engine}
    sync = declared(destination, strategy, table(source), *keys, **given)
    sync = replace(sync, columns=(MappedColumn("id", "id"), MappedColumn("n", "n")))
    with moved(monkeypatch, moment[0], moment[1], erasing(erased, lake, source, DEAD_LETTERS.table_name)):
        run(lake, sync)
    assert [text.startswith('{"id":3') for text in letters_of(lake, sync)] == [True]
    assert stored(lake, destination) == [(1, 1)]
    # Nothing differs: no version of the dead letters, whose writes have a `txn`.
    before = lake.version(DEAD_LETTERS)
    run(lake, sync)
    assert not any(
        sync.name in str(lake.commit(DEAD_LETTERS, each)) for each in range(before + 1, lake.version(DEAD_LETTERS))
    )


def remembered(
    lake: Lakehouse, patch: pytest.MonkeyPatch, sync: SyncDeclaration, source: str, rows: str, keys: str, erased: Erase
) -> list[Any]:
    """Run a sync, and again after more rows came, with an erasure meanwhile; return all ids that its keys ever had."""
    run(lake, sync)
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES {rows}")
    with moved(patch, *BEFORE_THE_COMMIT[sync.engine], erasing(erased, lake, source, keys)):
        run(lake, sync)
    return ever_in(lake, keys, "id")


@of_both_engines
def test_keys_that_a_mirror_remembers(
    quick_syncs: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: SyncEngine, erased: Erase
) -> None:
    lake, (_, destination) = quick_syncs, names()
    source = source_of(lake, "(1, 1, 'u')")
    guards = DeletionGuards(tracked=True)
    sync = declared(destination, SyncStrategy.MIRROR, table(source), "id", guards=guards, engine=engine)
    keys, rows = f"ops.{written_keys_table(sync.name)}", f"({ANN}, 1.5, 'u'), (3, 2, 'u')"
    assert remembered(lake, monkeypatch, sync, source, rows, keys, erased) == [1, 3]
    assert stored(lake, destination, "id") == [(1,), (3,)]


@of_both_engines
def test_keys_that_events_delete(
    quick_syncs: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: SyncEngine, erased: Erase
) -> None:
    lake, (_, destination) = quick_syncs, names()
    source = source_of(lake, "(1, 1, 'd')")
    events = ChangeEvents(operation="op", sequence_by="n")
    sync = declared(destination, SyncStrategy.CDC, table(source), "id", events=events, engine=engine)
    keys, rows = f"ops.{deleted_keys_table(sync.name)}", f"({ANN}, 2, 'd'), (3, 3, 'd'), (4, 4, 'u')"
    assert remembered(lake, monkeypatch, sync, source, rows, keys, erased) == [1, 3]
    assert stored(lake, destination, "id") == [(4,)]


def test_rows_that_were_inserted_are_named(quick_syncs: Lakehouse, monkeypatch: pytest.MonkeyPatch, erased: Erase) -> None:
    """A `txn` makes each insertion once, so that none is left for the fence: the run fails, and so does the next one."""
    lake, (_, destination) = quick_syncs, names()
    source = source_of(lake, "(1, 1, 'u')", f"({ANN}, 2, 'u')")
    name = f"ratify.bronze.{destination}"
    lake.quick(f"CREATE TABLE {name} (id INT, n DECIMAL(3,1), op STRING) USING DELTA")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    with (
        moved(monkeypatch, *BEFORE_THE_STATEMENT, erasing(erased, lake, source, f"bronze.{destination}")),
        pytest.raises(WrittenAfterErasure, match=r"Version 2 of .*`ratify erase` again"),
    ):
        run(lake, sync)
    with pytest.raises(WrittenAfterErasure):
        run(lake, sync)
    fence(lake, name)
    erased(lake, name, ANN)
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES (3, 3, 'u')")
    run(lake, sync)
    assert stored(lake, destination, "id") == [(1,), (3,)]


@of_both_engines
def test_dead_letters_that_are_replayed(quick_syncs: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: SyncEngine) -> None:
    lake, (_, destination) = quick_syncs, names()
    source = source_of(lake, f"({ANN}, 1.5, 'u')", "(3, 2.5, 'u')")
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT, op STRING) USING DELTA")
    sync = declared(destination, SyncStrategy.APPEND, table(source), row_errors=RowErrors.SKIP, engine=engine)
    run(lake, sync)
    corrected = replace(sync, columns=(MappedColumn("n", "n", cast="int"),))

    def erasure() -> None:
        fence(lake, f"ratify.bronze.{destination}")
        letters = lake.full(DEAD_LETTERS)
        of_ann = f"sync = '{sync.name}' AND get_json_object(row, '$.id') = '{ANN}'"
        lake.run(f"DELETE FROM {letters} WHERE {of_ann}")

    with (
        moved(monkeypatch, dead_letter_replay, "RowConversion", erasure),
        pytest.raises(ReadBeforeErasure, match="try again"),
    ):
        replayed(lake.spark, lake.duckdb, corrected)
    assert replayed(lake.spark, lake.duckdb, corrected).waiting == 0
    assert stored(lake, destination, "id") == [(3,)]


@pytest.mark.parametrize(
    ("moment", "begun"),
    [
        (BEFORE_THE_LOOK, True),
        pytest.param(BEFORE_THE_LOOK, False, marks=pytest.mark.long),
        pytest.param(BEFORE_THE_STATEMENT, False, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("no_previews")
def test_the_quarantine_of_an_incremental_table(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, moment: Any, *, begun: bool
) -> None:
    """Its table does not change, so that no commit of it is refused."""
    without_pictures(monkeypatch)
    schema = f"q_{uuid4().hex[:10]}"
    lake.catalog.ensure_schemas((f"{schema}_in", schema))
    source = f"ratify.{schema}_in.a"
    lake.quick(f"CREATE TABLE {source} (id INT, n INT) USING DELTA TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    lake.quick(f"INSERT INTO {source} VALUES (1, 1), (4, NULL)")
    given = (Expectation("n_is_given", "n IS NOT NULL", Action.QUARANTINE),)
    query = declared_query(schema, "t", f"SELECT id, n FROM {schema}_in.a", ["id"], given)
    quarantine = f"{schema}.t_quarantine"

    def erasure() -> None:
        lake.quick(f"DELETE FROM {source} WHERE id = {ANN}")
        fence(lake, f"ratify.{quarantine}")

    if begun:
        row = '{"id":4}'
        begin(lake, query, "VALUES (1, 1)", f"VALUES (sha256('{row}'), 'n_is_given', '{row}', 1)")
    else:
        assert list(materialize_changes(lake.spark, query))
    assert planned(lake, query).computes == "nothing"
    lake.quick(f"INSERT INTO {source} VALUES ({ANN}, NULL), (3, NULL)")
    with moved(monkeypatch, moment[0], moment[1], erasure):
        assert list(materialize_changes(lake.spark, query))
    assert [text[:7] for text in ever_in(lake, quarantine, "row")] == ['{"id":3', '{"id":4']
    assert [row["id"] for row in lake.quick(f"SELECT id FROM {schema}.t")] == [1]
