"""What a load shows of itself: numbers for the plots of the asset pages, the ledger's own page, and progress in the log."""

import asyncio
import datetime as dt
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_graphql.schema import create_schema

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.landed_files import bronze_table
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, FileOutcome, Status
from ratify_lakehouse.ingest.ledger.ledger_queries import Total
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome
from ratify_lakehouse.ingest.load.load_metrics import LoadedBatch, ledger_numbers, numbers
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from tests.cli.conftest import LoadTarget
from tests.cli.products_project import PRODUCTS

pytestmark = pytest.mark.server

HEADER = "code,name\n"
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


def outcome(name: str, landed: float | None, status: Status = Status.LOADED, **more: Any) -> FileOutcome:
    """Of a file that landed so many seconds before noon."""
    at = None if landed is None else NOON - dt.timedelta(seconds=landed)
    return FileOutcome(name, "f", "0", 10, "b", status, landed_at=at, **more)


def batch(*files: FileOutcome, seconds: float = 1.0) -> LoadedBatch:
    return LoadedBatch(BatchOutcome("b", files, 1), NOON, seconds)


def test_the_numbers_of_a_load() -> None:
    first = batch(outcome("1", 5, rows=2), outcome("2", 90, Status.REFUSED), outcome("3", 7, rows=1), seconds=2)
    # What an earlier attempt had committed was not late by this one, and a store may tell no time.
    second = batch(outcome("4", 900, recovered=True), outcome("5", None), outcome("6", 60), outcome("7", 1, Status.REPEATED))
    found = numbers([first, second])
    assert found == {
        "files": 7,
        "bytes": 70,
        "files refused": 1,
        "files loaded": 5,
        "files repeated": 1,
        "files withdrawn": 0,
        "seconds per batch": 1.5,
        "lag p50 (s)": 7,
        "lag max (s)": 60,
    }
    assert "rows withdrawn" not in found
    corrected = numbers(
        [batch(outcome("1", 5, rows=2, replaced=3), outcome("2", 5, rows=1), outcome("3", 5, replaced=1, recovered=True))]
    )
    assert (corrected["files loaded"], corrected["files withdrawn"], corrected["rows withdrawn"]) == (3, 1, 3)
    assert first.log_line(3, 63, 100) == "batch 3 (b) in 2.0 s: 2 loaded, 1 refused, 3 rows; 63 of 100 files are done"
    assert numbers([])["files"] == 0
    assert not any(name.startswith(("lag", "seconds")) for name in numbers([]))


def test_the_numbers_of_the_ledger() -> None:
    waiting = [LandedFile(name, 1, "f", NOON - dt.timedelta(seconds=age)) for name, age in (("1", 5), ("2", 30))]
    sums = dict.fromkeys(Status, Total()) | {Status.LOADED: Total(3, 20, 500), Status.REFUSED: Total(1, 0, 7)}
    found = ledger_numbers(sums, "bronze.t", [*waiting, LandedFile("3", 1, "f")], NOON)
    assert (found["files"], found["files loaded"], found["files refused"], found["bytes"]) == (4, 3, 1, 507)
    assert (found["rows loaded"], found["files waiting for bronze.t"], found["oldest waiting for bronze.t (s)"]) == (
        20,
        3,
        30,
    )
    assert ledger_numbers(sums, "bronze.t", [], NOON)["oldest waiting for bronze.t (s)"] == 0


@pytest.fixture
def loaded(target: LoadTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance in which 31 files were loaded, of which one is broken, in two batches."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    folder = tmp_path / "landing" / "reference"
    folder.mkdir(parents=True)
    for number in range(30):
        path = folder / f"products-{number:02}.csv"
        path.write_text(f"{HEADER}XX,{number}\n")
        os.utime(path, (path.stat().st_mtime - 3600, path.stat().st_mtime - 3600))
    (folder / "products-cut.csv").write_text(f"{HEADER}XX,cu")
    catalog = UnityCatalog(host=target.server.url, token=target.server.token)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance, closing(DuckDB(catalog=catalog)) as duckdb:
        resources = {"catalog": catalog, "duckdb": duckdb, "spark": Spark(catalog=catalog)}
        resources["landing"] = LandingZone(url=str(tmp_path / "landing"))
        done = dg.materialize([bronze_table(PRODUCTS)], resources=resources, instance=instance)
        assert done.success
        yield instance


def plotted(entries: Any) -> dict[str, Any]:
    """The metadata that the UI can plot."""
    return {name: entry.value for name, entry in entries.items() if isinstance(entry.value, int | float)}


def test_a_run_shows_what_it_did(loaded: dg.DagsterInstance) -> None:
    event = loaded.get_latest_materialization_event(asset_key(PRODUCTS.table))
    assert event
    assert event.asset_materialization
    shown = plotted(event.asset_materialization.metadata)
    assert (shown["files"], shown["files loaded"], shown["files refused"], shown["rows added"]) == (31, 30, 1, 30)
    assert shown["bytes"] == sum(len(f"{HEADER}XX,{number}\n") for number in range(30)) + len(f"{HEADER}XX,cu")
    assert 3600 <= shown["lag p50 (s)"] <= shown["lag max (s)"] < 3900
    assert 0 < shown["seconds per batch"] < 120
    (run,) = loaded.get_runs()
    logged = [record.event_log_entry.user_message for record in loaded.get_records_for_run(run.run_id).records]
    assert [line for line in logged if "30 of 31 files are done" in line]
    assert [line for line in logged if "31 of 31 files are done" in line]
    assert [line for line in logged if "products-cut.csv: refused" in line]


def test_the_ledger_has_a_page_of_its_own(loaded: dg.DagsterInstance) -> None:
    """By the UI's own GraphQL, on the project's own definitions."""
    query = """query Page($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
        definition { description groupName }
        assetObservations { metadataEntries { label ... on IntMetadataEntry { intValue }
                                                    ... on FloatMetadataEntry { floatValue } } } } } }"""
    definitions = ModuleTarget("orchestration.definitions", None, None, None)
    with WorkspaceProcessContext(loaded, definitions) as process:
        variables = {"key": {"path": list(asset_key(LANDED_FILES).path)}}
        context = process.create_request_context()
        answer = asyncio.run(create_schema().execute_async(query, context_value=context, variable_values=variables))
    assert answer.errors is None
    page = answer.data["assetOrError"]
    assert page["definition"]["groupName"] == "ops"
    (observation,) = page["assetObservations"]
    shown = {entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in observation["metadataEntries"]}
    assert (shown["files"], shown["files loaded"], shown["rows loaded"], shown["files refused"]) == (31, 30, 30, 1)
    assert (shown["files waiting for bronze.products"], shown["oldest waiting for bronze.products (s)"]) == (0, 0)
