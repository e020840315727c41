"""What the sensor asks for: of an index, and on a real instance."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.definitions import defs
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.landed_files import bronze_table
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.definitions.sensors import landed_files_sensor as landed_files_sensor_module
from ratify_lakehouse.definitions.sensors.landed_files_sensor import (
    ATTEMPT_TAG,
    LOST_AFTER_SECONDS,
    REQUEST_TAG,
    landed_files_sensor,
)
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.discovery.file_index import LAST, FileIndex, LoadRequest, Look
from ratify_lakehouse.ingest.discovery.run_planning import MAX_ATTEMPTS, Cursor, Limits, RunOutcome, plan
from ratify_lakehouse.ingest.file_source import APPEND, LOAD_COLUMNS, Source
from ratify_lakehouse.landing.file_listing import Listed
from ratify_lakehouse.landing.landing_zone import LandingZone
from resources.project_resources import RESOURCES
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import HEADER, Landing, new_source

SOURCE = "orders"
SOURCES = [
    Source(pattern, (), TableDeclaration("bronze", name, LOAD_COLUMNS, "of a test", Engine.DUCKDB, APPEND))
    for name, pattern in (("orders", "trips/*.csv"), ("products", "reference/products*.csv"))
]
"""Those of the sensor."""


class Ticks:
    """Ticks of a sensor with one source, on an index; the clock is the number of the tick."""

    def __init__(self, index: FileIndex, *, files: int = 2, requests: int = 3, open_requests: int = 100) -> None:
        self.index = index
        self.limits = Limits(files=files, size=1000, requests=requests, open=open_requests)
        self.tick = 0

    def look(self, **files: str) -> None:
        page = [Listed(f"{name}.csv", 10, mark, 0) for name, mark in sorted(files.items())]
        self.index.observe(Look(self.tick, 0, lambda _: SOURCE), page, "", LAST)

    def plan(self, outcome: RunOutcome = RunOutcome.RUNNING, *, cursor_lost: bool = False) -> list[LoadRequest]:
        asked = plan(
            self.index, [SOURCE], lambda _: outcome, self.limits, requested=self.tick, settle_seconds=0, now=self.tick
        )
        self.tick += not cursor_lost
        return asked

    def ask(self, **files: str) -> list[list[str]]:
        self.look(**files)
        return paths(self.plan())


def paths(requests: list[LoadRequest]) -> list[list[str]]:
    return [list(request.files[SOURCE]) for request in requests]


@pytest.fixture
def ticks(tmp_path: Path) -> Iterator[Ticks]:
    with FileIndex.opened(tmp_path, None) as index:
        yield Ticks(index)


def test_new_changed_and_late_files_are_asked_for_once(ticks: Ticks) -> None:
    assert ticks.ask(b="1", c="1") == [["b.csv", "c.csv"]]
    assert ticks.ask(b="1", c="1") == []
    # One changed; one arrived late under a name that sorts before all others.
    assert ticks.ask(a="1", b="2", c="1") == [["a.csv", "b.csv"]]


def test_a_file_that_vanished_and_came_back_is_asked_for_again(ticks: Ticks) -> None:
    assert ticks.ask(a="1") == [["a.csv"]]
    assert ticks.ask() == []
    assert ticks.index.counts().known == 0
    assert ticks.ask(a="1") == [["a.csv"]]


def test_requests_are_bounded_and_the_rest_waits(ticks: Ticks) -> None:
    many = {f"f{number}": "1" for number in range(9)}
    assert [len(files) for files in ticks.ask(**many)] == [2, 2, 2]
    assert [len(files) for files in ticks.ask(**many)] == [2, 1]


def test_no_more_runs_are_asked_for_than_may_be_open(ticks: Ticks) -> None:
    ticks.limits = ticks.limits.model_copy(update={"open": 4})
    many = {f"f{number:02}": "1" for number in range(20)}
    assert [len(ticks.ask(**many)) for _ in range(3)] == [3, 1, 0]
    assert len(ticks.plan(RunOutcome.SUCCEEDED)) == 3


def test_files_that_were_seen_first_go_first(ticks: Ticks) -> None:
    ticks.limits = ticks.limits.model_copy(update={"requests": 1})
    assert ticks.ask(x="1", y="1", z="1") == [["x.csv", "y.csv"]]
    assert ticks.ask(a="1", x="1", y="1", z="1") == [["z.csv", "a.csv"]]


def test_a_failed_run_is_asked_for_again_until_it_is_given_up(ticks: Ticks) -> None:
    ticks.look(a="1")
    (first,) = ticks.plan()
    assert ticks.plan(RunOutcome.RUNNING) == []
    for attempt in range(2, MAX_ATTEMPTS + 1):
        (again,) = ticks.plan(RunOutcome.FAILED)
        assert (again.id, again.attempt, again.files) == (first.id, attempt, first.files)
    assert ticks.plan(RunOutcome.FAILED) == []
    assert (ticks.index.counts().given_up, ticks.index.requests()) == (1, [])
    # Given up is the version, not the name.
    assert ticks.ask(a="1") == []
    assert ticks.ask(a="2") == [["a.csv"]]


def test_a_request_that_succeeded_is_not_repeated(ticks: Ticks) -> None:
    assert ticks.ask(a="1") == [["a.csv"]]
    assert ticks.plan(RunOutcome.SUCCEEDED) == []
    assert (ticks.index.requests(), ticks.index.counts().waiting) == ([], 0)
    assert ticks.plan(RunOutcome.FAILED) == ticks.plan() == []


def test_a_repeated_request_leaves_out_what_changed_or_vanished(ticks: Ticks) -> None:
    assert ticks.ask(a="1", b="1") == [["a.csv", "b.csv"]]
    ticks.look(a="2")
    assert paths(ticks.plan(RunOutcome.FAILED)) == [["a.csv"]]
    assert [request.id for request in ticks.index.requests()] == [2]


def test_requests_that_dagster_never_saw_are_made_again_under_the_same_key(ticks: Ticks) -> None:
    ticks.look(a="1", b="1", c="1")
    # The tick died before Dagster kept its cursor and its requests.
    lost = ticks.plan(cursor_lost=True)
    assert [(r.id, r.attempt, r.files) for r in ticks.plan()] == [(r.id, r.attempt, r.files) for r in lost]
    assert ticks.plan() == []


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8), max_size=8))
def test_each_version_of_each_file_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory, seen: list[dict[str, str]]
) -> None:
    with FileIndex.opened(tmp_path_factory.mktemp("index"), None) as index:
        ticks, before = Ticks(index, files=3, requests=100), dict[str, str]()
        for files in seen:
            new = sorted(f"{name}.csv" for name, mark in files.items() if before.get(name) != mark)
            assert sorted(path for batch in ticks.ask(**files) for path in batch) == new
            before = files
        assert ticks.ask(**before) == []


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DISCOVERY_MODE", raising=False)
    monkeypatch.setattr(landed_files_sensor_module, "_SOURCES", {source.table_name: source for source in SOURCES})
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def evaluate(instance: dg.DagsterInstance, zone: Path, cursor: str | None = None, duckdb: DuckDB | None = None) -> Any:
    # Where there is no catalog, there is no ledger either.
    resources = {"landing": LandingZone(url=str(zone)), "duckdb": duckdb or DuckDB(catalog=UnityCatalog())}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources, definitions=defs) as context:
        return landed_files_sensor.evaluate_tick(context)


def land(zone: Path, *names: str) -> None:
    for name in names:
        (zone / name).parent.mkdir(parents=True, exist_ok=True)
        (zone / name).write_text("x\n")


def requested(tick: Any) -> list[str]:
    ops = [op for request in tick.run_requests or [] for op in request.run_config["ops"].values()]
    return sorted(path for op in ops for path in op["config"]["files"])


def test_a_failed_listing_is_a_skip_that_forgets_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    land(tmp_path / "zone", "trips/1.csv")
    first = evaluate(instance, tmp_path / "zone")
    assert requested(first) == ["trips/1.csv"]
    (tmp_path / "zone").rename(tmp_path / "away")
    tick = evaluate(instance, tmp_path / "zone", first.cursor)
    assert tick.run_requests == []
    assert "does not exist" in (tick.skip_message or "")
    assert Cursor.model_validate_json(tick.cursor) == Cursor.model_validate_json(first.cursor)
    (tmp_path / "away").rename(tmp_path / "zone")
    assert evaluate(instance, tmp_path / "zone", tick.cursor).run_requests == []


def test_a_zone_that_is_missing_from_the_start_makes_one_index(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    cursor = None
    for _ in range(3):
        cursor = evaluate(instance, tmp_path / "missing", cursor).cursor
    assert len(list((tmp_path / "home" / "discovery").glob("*.sqlite"))) == 1


def test_a_tick_asks_for_runs_that_the_job_understands(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    land(tmp_path / "zone", "trips/2013-01-01.csv", "reference/products.csv")
    tick = evaluate(instance, tmp_path / "zone")
    (request,) = tick.run_requests or []
    assert request.asset_selection == [
        dg.AssetKey(["ratify", "bronze", "orders"]),
        dg.AssetKey(["ratify", "bronze", "products"]),
    ]
    assets, ingest = [bronze_table(source) for source in SOURCES], dg.define_asset_job("ingest")
    project = dg.Definitions(assets=assets, jobs=[ingest], resources=RESOURCES, executor=side_by_side_executor)
    assert dg.validate_run_config(project.resolve_job_def("ingest"), request.run_config)
    assert request.run_config["ops"]["bronze__orders"]["config"]["files"] == ["trips/2013-01-01.csv"]


def test_the_cursor_stays_small(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    land(tmp_path / "zone", *(f"trips/{number}.csv" for number in range(500)))
    tick = evaluate(instance, tmp_path / "zone")
    assert len(tick.run_requests) == 10
    assert len(tick.cursor) < 200


def test_a_lost_index_costs_a_listing_and_never_an_old_run_key(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    land(tmp_path / "zone", "trips/1.csv")
    first = evaluate(instance, tmp_path / "zone")
    (index,) = (tmp_path / "home" / "discovery").glob("*.sqlite")
    index.unlink()
    again = evaluate(instance, tmp_path / "zone", first.cursor)
    assert requested(again) == ["trips/1.csv"]
    assert again.run_requests[0].run_key != first.run_requests[0].run_key


@pytest.mark.parametrize("rubbish", [b"", b"no database" * 1000])
def test_a_damaged_index_is_reported_and_recreated(tmp_path: Path, instance: dg.DagsterInstance, rubbish: bytes) -> None:
    land(tmp_path / "zone", "trips/1.csv")
    first = evaluate(instance, tmp_path / "zone")
    (index,) = (tmp_path / "home" / "discovery").glob("*.sqlite")
    index.write_bytes(rubbish)
    damaged = evaluate(instance, tmp_path / "zone", first.cursor)
    assert "is damaged" in (damaged.skip_message or "")
    assert requested(evaluate(instance, tmp_path / "zone", first.cursor)) == ["trips/1.csv"]


def test_a_cursor_of_an_older_form_starts_over(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    land(tmp_path / "zone", "trips/1.csv")
    old = json.dumps({"seen": {"trips/1.csv": "1"}, "open": {}, "given_up": {}})
    assert requested(evaluate(instance, tmp_path / "zone", old)) == ["trips/1.csv"]


def test_how_runs_ended_is_asked_of_dagster(tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: Any) -> None:
    land(tmp_path / "zone", "trips/1.csv")
    tick = evaluate(instance, tmp_path / "zone")
    tags = tick.run_requests[0].tags
    run = dg.DagsterRun(job_name="ingest", tags=tags, status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    assert "1 requested runs are not finished" in evaluate(instance, tmp_path / "zone", tick.cursor).skip_message
    instance.report_run_failed(run)
    second = evaluate(instance, tmp_path / "zone", tick.cursor)
    (request,) = second.run_requests
    assert (request.tags[REQUEST_TAG], request.tags[ATTEMPT_TAG]) == (tags[REQUEST_TAG], "2")
    assert request.run_key != tick.run_requests[0].run_key
    # A request that has no run is waited for, but not for ever.
    assert evaluate(instance, tmp_path / "zone", second.cursor).run_requests == []
    monkeypatch.setattr("ratify_lakehouse.definitions.sensors.landed_files_sensor.LOST_AFTER_SECONDS", -1)
    assert LOST_AFTER_SECONDS > 600
    (request,) = evaluate(instance, tmp_path / "zone", second.cursor).run_requests
    assert request.tags[ATTEMPT_TAG] == "3"


@pytest.mark.stack
def test_a_new_index_asks_only_for_files_that_wait(
    lake: Lakehouse, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `ratify demo`, whose sensor has an index of its own."""
    (tmp_path / "zone").mkdir()
    landing = Landing(lake, tmp_path / "zone", source := new_source("code", "name"))
    monkeypatch.setattr(landed_files_sensor_module, "_SOURCES", {source.table_name: source})
    for name in ("loaded.csv", "refused.csv"):
        landing.put(name, HEADER + name)
    assert len(landing.load().files) == 2
    for name in ("waiting.csv", "other.csv"):
        landing.put(name, HEADER)
    tick = evaluate(instance, landing.root, None, lake.duckdb)
    assert requested(tick) == [f"{landing.folder}/{name}" for name in ("other.csv", "waiting.csv")]
    # It is compared once; from then on the index knows what is new.
    landing.put("loaded.csv", HEADER + "AA,American\n")
    again = evaluate(instance, landing.root, tick.cursor, DuckDB(catalog=UnityCatalog(host="http://127.0.0.1:1", token="x")))
    assert requested(again) == [f"{landing.folder}/loaded.csv"]


# The catalog's client asks again after seconds.
@pytest.mark.server
def test_a_catalog_that_does_not_answer_is_waited_for(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """What a new index finds may be loaded already."""
    land(tmp_path / "zone", "trips/1.csv")
    gone = UnityCatalog(host="http://127.0.0.1:1", token="x", retry_seconds=1)
    tick = evaluate(instance, tmp_path / "zone", None, DuckDB(catalog=gone))
    assert requested(tick) == []
    assert "did not answer" in (tick.skip_message or "")
    assert requested(evaluate(instance, tmp_path / "zone", tick.cursor)) == ["trips/1.csv"]


def test_files_that_are_loaded_are_not_requested_again_though_a_later_table_fails(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A run carries them on to silver and gold; why that failed may have nothing to do with the files."""
    land(tmp_path / "zone", "trips/1.csv", "reference/products.csv")
    tick = evaluate(instance, tmp_path / "zone")
    (request,) = tick.run_requests
    fails = {"bronze__products", "silver__sales"}

    def step(name: str, *above: dg.AssetKey) -> dg.AssetsDefinition:
        spec = dg.AssetSpec(dg.AssetKey(["ratify", *name.split("__")]), deps=above)

        @dg.multi_asset(name=name, specs=[spec])
        def make() -> dg.MaterializeResult[Any]:
            if name in fails:
                raise RuntimeError(name)
            return dg.MaterializeResult()

        return make

    bronze = [step("bronze__orders"), step("bronze__products")]
    job = dg.Definitions(assets=[*bronze, step("silver__sales", bronze[0].key)]).resolve_implicit_global_asset_job_def()
    assert not job.execute_in_process(instance=instance, tags=dict(request.tags), raise_on_error=False).success
    tick = evaluate(instance, tmp_path / "zone", tick.cursor)
    assert requested(tick) == ["reference/products.csv", "trips/1.csv"]
    fails.remove("bronze__products")
    (request,) = tick.run_requests
    assert not job.execute_in_process(instance=instance, tags=dict(request.tags), raise_on_error=False).success
    tick = evaluate(instance, tmp_path / "zone", tick.cursor)
    assert tick.run_requests == []
    assert tick.skip_message == "No new files; 2 are known."
