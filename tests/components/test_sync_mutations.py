"""The tests of syncs find faults: each of these was in the code once, or is one step away from it, and is put back here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.syncs import (
    dead_letter_replay,
    duckdb_source,
    duckdb_tables,
    letter_values,
    source_files,
    source_rows,
    sync_position,
)
from ratify_lakehouse.components.syncs.source_files import by_header
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import (
    DeletionGuards,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_engines import pass_of, replayed
from ratify_lakehouse.components.syncs.sync_position import Insertions
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.snapshot import RETENTION, Snapshot
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from tests.components.declared_syncs import declared, lake_in, names, stored, table
from tests.components.incremental_tables import moved
from tests.components.inserted_letters import clock
from tests.engines.lakehouse import Lakehouse


@pytest.fixture(scope="module")
def quick_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    """One for all scenes, each of which has tables and syncs of its own."""
    with lake_in(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@dataclass(frozen=True)
class SyncScene:
    """A source and a destination of `id` and `v`, in which something happens.

    Attributes:
        lake: The lakehouse.
        patch: For what happens meanwhile.
        folder: For files.
        source: The table that is the source, in bronze.
        destination: The table that is written to, in bronze.
    """

    lake: Lakehouse
    patch: pytest.MonkeyPatch
    folder: Path
    source: str
    destination: str

    def create(self, name: str, rows: str = "", properties: str = "", columns: str = "id INT, v STRING") -> None:
        self.lake.quick(f"CREATE TABLE ratify.bronze.{name} ({columns}) USING DELTA {properties}")
        if rows:
            self.lake.quick(f"INSERT INTO ratify.bronze.{name} VALUES {rows}")

    def declared(
        self, strategy: SyncStrategy, *keys: str, engine: SyncEngine = SyncEngine.DUCKDB, **more: Any
    ) -> SyncDeclaration:
        source = more.pop("source", None) or table(self.source)
        return declared(self.destination, strategy, source, *keys, engine=engine, **more)

    def run(self, sync: SyncDeclaration) -> None:
        pass_of(self.lake.spark, self.lake.duckdb, sync).run()

    def check(self, *rows: tuple[Any, ...]) -> None:
        found = stored(self.lake, self.destination)
        assert sorted(map(repr, found)) == sorted(map(repr, rows))


def a_file_arrives(scene: SyncScene) -> None:
    scene.create(scene.destination)
    sync = scene.declared(SyncStrategy.APPEND, source=SyncSource(files=str(scene.folder / "*.csv"), format="csv"))
    for number in (1, 2):
        (scene.folder / f"{number}.csv").write_text(f"id,v\n{number},a\n")
        scene.run(sync)
    scene.check((1, "a"), (2, "a"))


def a_txn_expires(scene: SyncScene) -> None:
    scene.create(scene.source, "(1, 'a')")
    scene.create(scene.destination, properties=f"TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')")
    sync = scene.declared(SyncStrategy.APPEND)
    scene.run(sync)
    scene.patch.setattr(Snapshot, "txn_versions", lambda *_: {})
    scene.run(sync)
    scene.check((1, "a"))


def two_runs_at_once(scene: SyncScene) -> None:
    scene.create(scene.source, "(1, 'a')")
    scene.create(scene.destination)
    sync = scene.declared(SyncStrategy.APPEND)
    with moved(scene.patch, DuckDBSession, "append", lambda: scene.run(sync)):
        scene.run(sync)
    scene.check((1, "a"))


def a_key_is_null(scene: SyncScene) -> None:
    scene.create(scene.source, "(NULL, 'a')")
    scene.create(scene.destination, "(NULL, 'b')")
    scene.run(scene.declared(SyncStrategy.MERGE, "id"))
    scene.check((None, "a"))


def another_writer_is_first(scene: SyncScene) -> None:
    scene.create(scene.source, "(1, 'new')")
    scene.create(scene.destination, "(1, 'old')")
    update = f"UPDATE ratify.bronze.{scene.destination} SET v = 'theirs' WHERE id = 1"
    sync = scene.declared(SyncStrategy.MERGE, "id")
    scene.run(sync)
    scene.lake.quick(update)
    scene.run(sync)
    scene.check((1, "new"))


def the_destination_is_created_again(scene: SyncScene) -> None:
    scene.create(scene.source, "(1, 'a'), (2, 'a')")
    guards = DeletionGuards(tracked=True)
    sync = scene.declared(SyncStrategy.MIRROR, "id", guards=guards)
    scene.run(sync)
    scene.lake.quick(f"DROP TABLE ratify.bronze.{scene.destination}")
    scene.create(scene.destination, "(1, 'a'), (2, 'a')")
    scene.lake.quick(f"DELETE FROM ratify.bronze.{scene.source} WHERE id = 1")
    scene.run(sync)
    scene.check((1, "a"), (2, "a"))


def a_row_does_not_fit_yet(scene: SyncScene) -> None:
    scene.create(scene.source, "(1.5, TIMESTAMP'2026-01-01 00:00:00.000001Z')", columns="id DECIMAL(2,1), v TIMESTAMP")
    scene.create(scene.destination, columns="id INT, v TIMESTAMP")
    columns = (MappedColumn("id", "id", cast="int"),)
    scene.run(scene.declared(SyncStrategy.APPEND, row_errors=RowErrors.SKIP))
    corrected = scene.declared(SyncStrategy.APPEND, columns=columns, row_errors=RowErrors.SKIP)
    replayed(scene.lake.spark, scene.lake.duckdb, corrected)
    assert stored(scene.lake, scene.destination, "id, unix_micros(v) % 1000000") == [(1, 1)]


def a_clock_is_late(scene: SyncScene) -> None:
    scene.create(scene.source, "(1.5, 'a')", columns="id DECIMAL(2,1), v STRING")
    scene.create(scene.destination)
    sync = scene.declared(SyncStrategy.APPEND, row_errors=RowErrors.SKIP)
    corrected = replace(sync, columns=(MappedColumn("id", "id", cast="int"),))
    for hours in (0, -1):
        scene.run(sync)
        scene.patch.setattr(dead_letter_replay, "dt", clock(hours))
        replayed(scene.lake.spark, scene.lake.duckdb, corrected)
        scene.lake.quick(f"INSERT INTO ratify.bronze.{scene.source} VALUES (2.5, 'b')")
    scene.check((1, "a"), (2, "b"))


def a_line_has_other_fields(scene: SyncScene) -> None:
    (scene.folder / "a.csv").write_text("id,v\n1,a\n2,b,c\n")
    scene.create(scene.destination)
    source = SyncSource(files=str(scene.folder / "a.csv"), format="csv")
    sync = scene.declared(SyncStrategy.APPEND, source=source, row_errors=RowErrors.SKIP)
    scene.run(sync)
    replayed(scene.lake.spark, scene.lake.duckdb, sync)
    scene.check((1, "a"))


def two_keys_become_one(scene: SyncScene) -> None:
    columns, feed = "id DECIMAL(2,1), v STRING", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    scene.create(scene.source, "(1.5, 'b')", feed, columns)
    scene.create(scene.destination)
    cast = (MappedColumn("id", "id", cast="int"),)
    sync = scene.declared(SyncStrategy.MERGE, "id", engine=SyncEngine.SPARK, columns=cast, latest=("v",))
    scene.run(sync)
    scene.lake.quick(f"INSERT INTO ratify.bronze.{scene.source} VALUES (1.2, 'a')")
    scene.run(sync)
    scene.check((1, "b"))


def columns_come_in_another_order(scene: SyncScene) -> None:
    scene.create(scene.destination)
    (scene.folder / "a.csv").write_text("id,v\n1,5\n")
    (scene.folder / "b.csv").write_text("v,id\n6,2\n")
    scene.run(scene.declared(SyncStrategy.FULL, source=SyncSource(files=str(scene.folder / "*.csv"), format="csv")))
    scene.check((1, "5"), (2, "6"))


@dataclass(frozen=True)
class SyncFault:
    """A fault, and the scene in which it shows."""

    owner: Any
    name: str
    faulty: Any
    scene: Callable[[SyncScene], None]


_content_of = source_files._content_of


def _of_the_folder(files: Sequence[Path]) -> InputVersion:
    return InputVersion(f"{files[0].name} {_content_of(sorted(files[0].parent.iterdir())).table_id}", 0)


def _equal(_: RuleDialect, columns: Any, left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in columns) or "true"


def _by_place(sync: SyncDeclaration, files: Sequence[Path], **more: Any) -> dict[tuple[str, ...], list[Path]]:
    return {next(iter(by_header(sync, files, **more))): list(files)}


FAULTS: dict[str, SyncFault] = {
    "columns go by their places": SyncFault(duckdb_source, "by_header", _by_place, columns_come_in_another_order),
    "affected keys are those of the source": SyncFault(
        source_rows, "converted", lambda _, column, side: f"{side}.{column.source}", two_keys_become_one
    ),
    "claims are as old as a clock says": SyncFault(
        dead_letter_replay._Claim,
        "inputs",
        property(lambda self: {"dead letters": InputVersion("", self.at)}),
        a_clock_is_late,
    ),
    "an append does not say of which pass it is": SyncFault(
        duckdb_tables, "pass_load", lambda *_: uuid4().hex, a_row_does_not_fit_yet
    ),
    "a letter forgets that its line was none": SyncFault(
        SourceRows, "letter_types", property(lambda self: dict(self.types)), a_line_has_other_fields
    ),
    "all files of a pattern are one content": SyncFault(source_files, "_content_of", _of_the_folder, a_file_arrives),
    "nothing but txn says what was inserted": SyncFault(Insertions, "_committed", ({}, 0, 0.0), a_txn_expires),
    "of two appends after one version none is refused": SyncFault(
        duckdb_tables, "insert_loads", lambda *_: [uuid4().hex], two_runs_at_once
    ),
    "NULL keys are never the same": SyncFault(RuleDialect, "same", _equal, a_key_is_null),
    "commits of others go unnoticed": SyncFault(
        sync_position, "SAME_ROWS", frozenset(["UPDATE", "MERGE", "WRITE"]), another_writer_is_first
    ),
    "keys are those of a table of that name": SyncFault(
        WrittenKeys, "_of_another", "false", the_destination_is_created_again
    ),
    "letters have three digits of a second": SyncFault(
        letter_values._DuckDBLetters, "_formats", {"timestamp": "%Y-%m-%dT%H:%M:%S.%gZ"}, a_row_does_not_fit_yet
    ),
}


WITH_SPARK = {"affected keys are those of the source"}
BY_DUCKDB = [name for name in FAULTS if name not in WITH_SPARK]


SCENES = {FAULTS[name].scene: None for name in BY_DUCKDB}


def played(
    lake: Lakehouse,
    patch: pytest.MonkeyPatch,
    folder: Path,
    scene: Callable[[SyncScene], None],
    fault: SyncFault | None = None,
) -> None:
    lake.catalog.ensure_schemas(("bronze", "ops"))
    with patch.context() as within:
        if fault:
            within.setattr(fault.owner, fault.name, fault.faulty)
        scene(SyncScene(lake, within, folder, *names()))


@pytest.mark.server
@pytest.mark.long
@pytest.mark.parametrize("fault", BY_DUCKDB)
def test_a_fault_is_found(quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str) -> None:
    with pytest.raises(AssertionError):
        played(quick_lake, monkeypatch, tmp_path, FAULTS[fault].scene, FAULTS[fault])


@pytest.mark.server
@pytest.mark.parametrize("scene", SCENES)
def test_without_a_fault_all_is_right(
    quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scene: Callable[[SyncScene], None]
) -> None:
    played(quick_lake, monkeypatch, tmp_path, scene)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(WITH_SPARK))
def test_a_fault_is_found_with_spark(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str) -> None:
    with pytest.raises(AssertionError):
        played(lake, monkeypatch, tmp_path, FAULTS[fault].scene, FAULTS[fault])


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(WITH_SPARK))
def test_without_the_fault_all_is_right_with_spark(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    played(lake, monkeypatch, tmp_path, FAULTS[fault].scene)
