"""What is declared of a source: files that are written again, columns that nobody declared, app ids that expire."""

import os
import time
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ratify_lakehouse.components.checks.landed_file_checks import files_loaded_once
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.snapshot import RETENTION, SnapshotState
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS, RESCUED, NewColumns, Rewrite, SchemaMode, Source
from ratify_lakehouse.ingest.ledger.file_ledger import Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import HEADER, Landing, new_source

pytestmark = [pytest.mark.stack, pytest.mark.locks("ledger of files")]


def landing_of(lake: Lakehouse, root: Path, **declared: Any) -> Landing:
    return Landing(lake, root, replace(new_source("code", "name"), **declared))


def codes(landing: Landing) -> list[str]:
    return [row[0] for row in landing.bronze()]


def validated(landing: Landing) -> None:
    found = files_loaded_once(landing.zone, landing.lake.duckdb, landing.source)
    assert found.passed, found.description


def test_new_content_is_appended(lake: Lakehouse, tmp_path: Path) -> None:
    landing = landing_of(lake, tmp_path, on_rewrite=Rewrite.APPEND)
    landing.put("1.csv", HEADER + "AA,first\nBB,first\n")
    landing.load()
    landing.put("1.csv", HEADER + "CC,second\n")
    for expected in ((Status.LOADED, 1, ""), (Status.REPEATED, 0, "its bytes were loaded before")):
        assert landing.fates(landing.load()) == {"1.csv": expected}
    assert sorted(codes(landing)) == ["AA", "BB", "CC"]
    validated(landing)


def test_new_content_takes_the_place_of_the_old(lake: Lakehouse, tmp_path: Path) -> None:
    landing = landing_of(lake, tmp_path, on_rewrite=Rewrite.REPLACE)
    landing.put("1.csv", HEADER + "AA,first\nBB,first\n")
    landing.put("2.csv", HEADER + "DD,other\n")
    assert landing.load().versions == [1]
    landing.put("1.csv", HEADER + "CC,second\n")
    second = landing.load("1.csv")
    assert [(file.status, file.rows, file.replaced, file.version) for file in second.files] == [(Status.LOADED, 1, 2, 2)]
    assert second.added == -1
    assert codes(landing) == ["CC", "DD"]
    assert landing.ledger() == [
        ("1.csv", "loaded", 1),
        ("1.csv", "loaded", 2),
        ("1.csv", "withdrawn", 2),
        ("2.csv", "loaded", 1),
    ]
    validated(landing)
    assert landing.waiting() == []
    # Loaded again it changes nothing; the first content, landed once more, takes the place back.
    assert landing.fates(landing.load("1.csv")) == {"1.csv": (Status.REPEATED, 0, "its bytes were loaded before")}
    landing.put("1.csv", HEADER + "AA,first\nBB,first\n")
    assert landing.load("1.csv").added == 1
    assert codes(landing) == ["AA", "BB", "DD"]
    validated(landing)


def test_what_a_repair_took_out_is_loaded_again(lake: Lakehouse, tmp_path: Path) -> None:
    landing = landing_of(lake, tmp_path)
    landing.put("1.csv", HEADER + "AA,first\n")
    landing.load()
    landing.put("2.csv", HEADER + "BB,second\n")
    landing.load()
    log = lake.duckdb.log(lake.full(landing.source.table))
    lost = next(file for file in log.files(log.refresh()) if file.version == 2)
    log.storage.remove(lost.path)
    repaired = repair(log)
    assert repaired is not None
    with lake.duckdb.session() as session:
        FileLedger(session, log, landing.source.table_name).record([])
    assert codes(landing) == ["AA"]
    assert [file.path for file in landing.waiting()] == [f"{landing.folder}/2.csv"]
    assert landing.fates(landing.load("2.csv")) == {"2.csv": (Status.LOADED, 1, "")}
    assert codes(landing) == ["AA", "BB"]
    assert [line for line in landing.ledger() if line[0] == "2.csv"] == [
        ("2.csv", "loaded", 1),
        ("2.csv", "loaded", 1),
        ("2.csv", "withdrawn", 1),
    ]
    assert landing.waiting() == []
    validated(landing)


def test_a_file_is_known_when_the_log_has_forgotten_it(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_source("code", "name").table
    landing = landing_of(lake, tmp_path, table=replace(table, properties={RETENTION: "interval 1 second"}))
    landing.put("1.csv", HEADER + "AA,first\n")
    landing.load()
    # With a new time, so that it is read again.
    os.utime(tmp_path / landing.folder / "1.csv", (1, 1))
    time.sleep(1.1)
    landing.put("2.csv", HEADER + "BB,second\n")
    landing.load("2.csv")
    (first,) = landing.zone.look([f"{landing.folder}/1.csv"])
    monkeypatch.setattr(SnapshotState, "__init__", partialmethod(SnapshotState.__init__, forget_at=0))
    with lake.another_duckdb().session() as session:
        assert not session.loaded(landing.source.table, [f"path:{first.path}"]), "the log still knows it"
    outcome = load_batch(lake.another_duckdb(), landing.zone, landing.source, [first])
    assert landing.fates(outcome) == {"1.csv": (Status.REPEATED, 0, "its bytes were loaded before")}
    assert codes(landing) == ["AA", "BB"]


def evolving(new_columns: NewColumns) -> Source:
    name = f"s_{uuid4().hex[:10]}"
    table = TableDeclaration("bronze", name, (RESCUED, *LOAD_COLUMNS), "of a test", Engine.DUCKDB, frozenset({"WRITE"}))
    return Source(f"{name}/*.jsonl", (), table, schema=SchemaMode.EVOLVING, new_columns=new_columns)


def test_a_table_gets_the_columns_of_its_files(lake: Lakehouse, tmp_path: Path) -> None:
    source = evolving(NewColumns.ADD)
    landing = Landing.__new__(Landing)
    landing.lake, landing.root, landing.source = lake, tmp_path, source
    landing.zone, landing.folder = landing_of(lake, tmp_path).zone, source.table.name
    (tmp_path / landing.folder).mkdir()
    landing.put("1.jsonl", '{"id": 1, "at": "2013-01-01T00:00:00Z"}\n')
    assert ensure_landed_table(lake.spark, lake.duckdb, landing.zone, source, landing.zone.files(source.pattern))
    landing.load()
    landing.put("2.jsonl", '{"id": "two", "tags": ["a", "b"], "place": {"lat": 1.5, "lon": 2.5}}\n')
    landing.put("3.jsonl", '{"id": 3}\n')
    assert {file.status for file in landing.load("2.jsonl", "3.jsonl").files} == {Status.LOADED}
    assert not ensure_landed_table(lake.spark, lake.duckdb, landing.zone, source, [])
    query = "SELECT id, tags, place.lat, _rescued_data ->> '$.id' FROM uc.{0} ORDER BY _source_file"
    with lake.duckdb.session() as session:
        by_duckdb = session.rows(query.format(source.table_name))
    assert by_duckdb == [(1, None, None, None), (None, ["a", "b"], 1.5, "two"), (3, None, None, None)]
    rows = lake.run(f"SELECT id, tags, place.lat AS lat FROM {lake.full(source.table)} ORDER BY _source_file")
    assert [tuple(row.values()) for row in rows] == [row[:3] for row in by_duckdb]
    assert [c.operation for c in lake.spark.history(lake.full(source.table))][1:] == ["ADD COLUMNS", "WRITE", "CREATE TABLE"]
