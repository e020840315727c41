"""What the sensor asks for, as a pure function and on a real instance."""

from pathlib import Path
from typing import Any

import dagster as dg
from hypothesis import given
from hypothesis import strategies as st

from orchestration.definitions import defs
from orchestration.ingestion import MAX_ATTEMPTS, Cursor, Outcome, Plan, plan
from orchestration.sensors import landed_files_sensor
from resources.landing import LandedFile, LandingZone


def listed(**files: str) -> dict[str, list[LandedFile]]:
    return {"flights_raw": [LandedFile(f"{name}.csv", 10, mark) for name, mark in sorted(files.items())]}


def planned(cursor: Cursor, listing: dict[str, list[LandedFile]], **outcomes: Outcome) -> Plan:
    return plan(cursor, listing, outcomes, max_files=2, max_bytes=1000, max_requests=3)


def asked(made: Plan) -> list[list[str]]:
    return [request.files.get("flights_raw", []) for request in made.requests.values()]


def test_new_changed_and_late_files_are_asked_for_once() -> None:
    first = planned(Cursor(), listed(b="1", c="1"))
    assert asked(first) == [["b.csv", "c.csv"]]
    assert asked(planned(first.cursor, listed(b="1", c="1"))) == []
    # One changed; one arrived late under a name that sorts before all others.
    second = planned(first.cursor, listed(a="1", b="2", c="1"))
    assert asked(second) == [["a.csv", "b.csv"]]


def test_a_file_that_vanished_and_came_back_is_asked_for_again() -> None:
    first = planned(Cursor(), listed(a="1"))
    gone = planned(first.cursor, listed())
    assert gone.cursor.seen == {}
    assert asked(planned(gone.cursor, listed(a="1"))) == [["a.csv"]]


def test_requests_are_bounded_and_the_rest_waits() -> None:
    many = listed(**{f"f{number}": "1" for number in range(9)})
    first = planned(Cursor(), many)
    assert [len(files) for files in asked(first)] == [2, 2, 2]
    assert [len(files) for files in asked(planned(first.cursor, many))] == [2, 1]


def test_a_failed_run_is_asked_for_again_until_it_is_given_up() -> None:
    made = planned(Cursor(), listed(a="1"))
    (key,) = made.requests
    assert asked(planned(made.cursor, listed(a="1"), **{key: Outcome.RUNNING})) == []
    for attempt in range(2, MAX_ATTEMPTS + 1):
        made = planned(made.cursor, listed(a="1"), **{key: Outcome.FAILED})
        assert made.requests[key].attempt == attempt
    made = planned(made.cursor, listed(a="1"), **{key: Outcome.FAILED})
    assert (made.requests, list(made.cursor.given_up)) == ({}, [key])
    done = planned(planned(Cursor(), listed(a="1")).cursor, listed(a="1"), **{key: Outcome.SUCCEEDED})
    assert (done.requests, done.cursor.open) == ({}, {})


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8), max_size=8))
def test_each_version_of_each_file_is_asked_for(ticks: list[dict[str, str]]) -> None:
    cursor, before, counted = Cursor(), dict[str, str](), dict[str, int]()
    for files in ticks:
        made = plan(cursor, listed(**files), {}, max_files=3, max_bytes=1000, max_requests=100)
        cursor = made.cursor
        new = sorted(f"{name}.csv" for name, mark in files.items() if before.get(name) != mark)
        assert sorted(path for paths in asked(made) for path in paths) == new
        before = files
        counted = {path: counted.get(path, 0) + 1 for path in new}
    assert plan(cursor, listed(**before), {}, max_files=3, max_bytes=1000, max_requests=100).requests == {}


def evaluate(instance: dg.DagsterInstance, zone: Path, cursor: str | None = None) -> Any:
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={"landing": LandingZone(url=str(zone))}, definitions=defs
    )
    return landed_files_sensor.evaluate_tick(context)


def test_a_failed_listing_is_a_skip_that_keeps_the_cursor(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        tick = evaluate(instance, tmp_path / "missing", Cursor(seen={"a.csv": "1"}).model_dump_json())
    assert tick.run_requests == []
    assert "does not exist" in (tick.skip_message or "")
    assert Cursor.model_validate_json(tick.cursor or "").seen == {"a.csv": "1"}


def test_a_tick_asks_for_runs_that_the_job_understands(tmp_path: Path) -> None:
    for name in ("trips/2013-01-01.csv", "reference/airlines.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x\n")
    with dg.DagsterInstance.ephemeral() as instance:
        tick = evaluate(instance, tmp_path)
    (request,) = tick.run_requests or []
    assert request.asset_selection == [
        dg.AssetKey(["ratify", "bronze", "flights_raw"]),
        dg.AssetKey(["ratify", "bronze", "airlines"]),
    ]
    assert dg.validate_run_config(defs.resolve_job_def("ingest"), request.run_config)
    assert request.run_config["ops"]["flights_raw"]["config"]["files"] == ["trips/2013-01-01.csv"]
