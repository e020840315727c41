"""Declarations, settings, history: what needs no engine."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from resources.errors import LandingUnavailable, NotConfigured, UnsafeDeclaration
from resources.history import Engine, commit_from_row, engine_of
from resources.landing import LandingZone
from resources.settings import Settings
from resources.tables import Column, TableDeclaration


def declare(*columns: Column, **more: Any) -> TableDeclaration:
    given: dict[str, Any] = {
        "layer": "silver",
        "name": "t",
        "comment": "c",
        "writer": Engine.SPARK,
        "operations": frozenset(),
    }
    return TableDeclaration(columns=columns or (Column("id", "bigint"),), **{**given, **more})


@pytest.mark.parametrize(
    ("type_", "word"),
    [
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("array<timestamp_ntz>", "TIMESTAMP_NTZ"),
        ("variant", "VARIANT"),
        ("map<string,variant>", "VARIANT"),
        ("struct<a:decimal(10,2)>", "DECIMAL"),
        ("array<struct<a:int,b:struct<c:decimal(5,1)>>>", "DECIMAL"),
        ("struct<a:array<decimal(3,0)>>", "DECIMAL"),
        ("interval day", "interval day"),
        ("nonsense", "nonsense"),
    ],
)
def test_types_that_another_engine_cannot_read_are_refused(type_: str, word: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=word) as error:
        declare(Column("bad", type_))
    assert "'bad'" in str(error.value)


@pytest.mark.parametrize(
    "type_", ["bigint", "decimal(10,2)", "array<decimal(10,2)>", "map<string,array<int>>", "struct<a:int,b:map<string,int>>"]
)
def test_types_that_all_engines_know_are_taken(type_: str) -> None:
    assert f"c {type_}" in declare(Column("c", type_)).ddl("cat")


@pytest.mark.parametrize(
    "more",
    [
        {"layer": "platinum"},
        {"name": "a b"},
        {"name": "x;drop"},
        {"keys": ("nope",)},
        {"properties": {"delta.columnMapping.mode": "name"}},
        {"properties": {"delta.constraints.positive": "id > 0"}},
        {"columns": ()},
        {"columns": (Column("a", "int"), Column("A", "int"))},
        {"columns": (Column("a,b", "int"),)},
    ],
)
def test_what_needs_column_mapping_or_stops_duckdb_is_refused(more: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "layer": "silver", "name": "t", "comment": "", "writer": Engine.SPARK, "operations": frozenset(),
        "columns": (Column("id", "int"),),
    }  # fmt: skip
    with pytest.raises(UnsafeDeclaration):
        TableDeclaration(**{**given, **more})


def test_ddl_always_switches_column_mapping_off_and_quotes() -> None:
    ddl = declare(Column("id", "bigint", "it's"), keys=("id",)).ddl("cat")
    assert ddl.startswith("CREATE TABLE IF NOT EXISTS cat.silver.t")
    assert "'delta.columnMapping.mode' = 'none'" in ddl
    assert "COMMENT 'it\\'s'" in ddl


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_environment_beats_the_running_stack(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean / "token").write_text("from-file\n")
    stack = {
        "catalog": {"url": "http://a", "name": "ratify", "token_file": str(clean / "token")},
        "spark": {"remote": "sc://a"},
    }
    (clean / "stack.json").write_text(json.dumps(stack))
    found = Settings().catalog_connection()
    assert (found.host, found.token and found.token.get_secret_value()) == ("http://a", "from-file")
    assert Settings().spark_url() == "sc://a"
    monkeypatch.setenv("UNITY_HOST", "http://b/")
    monkeypatch.setenv("UNITY_TOKEN", "from-env")
    monkeypatch.setenv("SPARK_REMOTE", "sc://b")
    found = Settings().catalog_connection()
    assert (found.host, found.token and found.token.get_secret_value()) == ("http://b", "from-env")
    assert Settings().spark_url() == "sc://b"
    assert "from-env" not in repr(Settings()) + repr(found)


def test_missing_settings_say_what_to_set(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfigured, match="ratify up"):
        Settings().catalog_connection()
    with pytest.raises(NotConfigured, match="SPARK_REMOTE"):
        Settings().spark_url()
    monkeypatch.setenv("UNITY_HOST", "http://b")
    with pytest.raises(NotConfigured, match="UNITY_TOKEN"):
        Settings().catalog_connection()


@pytest.mark.parametrize(
    ("info", "engine"),
    [
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", Engine.SPARK),
        ("Databricks-Runtime/17.x", Engine.SPARK),
        ("DuckDB", Engine.DUCKDB),
        ("Kernel-4.4.0/DeltaSink", Engine.FLINK),
        ("delta-rs:1.0", Engine.OTHER),
        (None, Engine.OTHER),
    ],
)
def test_engine_of(info: str | None, engine: Engine) -> None:
    assert engine_of(info) is engine


def test_commit_from_row() -> None:
    row = {
        "version": 3,
        "timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "operation": "MERGE",
        "engineInfo": "Apache-Spark/4.2.0",
        "operationMetrics": {"numTargetRowsInserted": "7", "predicate": "x"},
    }
    commit = commit_from_row(row)
    assert (commit.version, commit.engine, commit.rows_added, commit.metrics) == (
        3,
        Engine.SPARK,
        7,
        {"numTargetRowsInserted": 7},
    )
    assert commit_from_row({**row, "operationMetrics": None}).rows_added is None


def test_landing_lists_only_whole_csv_files(tmp_path: Path) -> None:
    for name in ("trips/b.csv", "trips/a.csv", "trips/.c.csv.part", "trips/_d.csv", "trips/notes.txt", "other/e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    assert [file.path for file in LandingZone(url=str(tmp_path)).files("trips/*.csv")] == ["trips/a.csv", "trips/b.csv"]


def test_landing_that_cannot_be_listed_is_not_empty(tmp_path: Path) -> None:
    with pytest.raises(LandingUnavailable, match="does not exist"):
        LandingZone(url=str(tmp_path / "missing")).files()
    with pytest.raises(LandingUnavailable, match="LANDING_URL"):
        LandingZone(url="nosuchstore://bucket").files()


def test_landing_in_an_object_store(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/zone/trips/a.csv", b"x\n1\n")
    zone = LandingZone(url="memory://zone")
    assert [file.path for file in zone.files("trips/*.csv")] == ["trips/a.csv"]
    fetched = zone.fetch("trips/a.csv", tmp_path)
    assert (fetched.local.read_bytes(), fetched.size, zone.read("trips/a.csv")) == (b"x\n1\n", 4, b"x\n1\n")
    with pytest.raises(LandingUnavailable):
        zone.fetch("trips/gone.csv", tmp_path)
