"""Runs of Dagster and logs in which the value of a subject is left are named."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.definitions.subject_traces import logs_with, runs_with, written_forms

# In JSON, it stands otherwise.
VALUE = 'Mia "M" Müster'


@pytest.fixture
def instance(tmp_path: Path) -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


def run(instance: dg.DagsterInstance, tag: str = "", printed: str = "", **metadata: Any) -> str:
    @dg.asset
    def orders() -> dg.MaterializeResult[Any]:
        print(f"about {printed}")
        return dg.MaterializeResult(metadata=metadata)

    return dg.materialize([orders], instance=instance, tags={"of": tag}).run_id


def found(instance: dg.DagsterInstance) -> set[tuple[str, str]]:
    return {(each.place, each.what) for each in runs_with(instance, VALUE)}


@pytest.mark.server
def test_runs_that_have_the_value(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    run(instance, tag="Zoe", printed="Zoe", row="Zoe")
    assert found(instance) == set()
    tagged, shown = run(instance, tag=VALUE), run(instance, row=VALUE)
    nested = run(instance, row=json.dumps({"row": json.dumps({"who": VALUE})}))
    both = run(instance, tag=VALUE, message=f"{VALUE!r} is no number")
    printed = run(instance, printed=VALUE)
    (output,) = (tmp_path / "storage" / printed / "compute_logs").glob("*.out")
    expected = {
        (f"run {tagged} of Dagster", "configuration"),
        (f"run {shown} of Dagster", "events"),
        (f"run {nested} of Dagster", "events"),
        (f"run {both} of Dagster", "configuration and events"),
        (str(output), "captured output"),
    }
    assert found(instance) == expected
    instance.report_runless_asset_event(dg.AssetMaterialization("orders", metadata={"row": VALUE}))
    assert found(instance) - expected == {("events of no run in Dagster", "events")}
    # What the report says of a run makes it go.
    for run_id in (tagged, shown, nested, both):
        instance.delete_run(run_id)
    output.unlink()
    assert found(instance) == {("events of no run in Dagster", "events")}


@pytest.mark.server
def test_more_runs_than_are_read_at_once(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratify_lakehouse.definitions.subject_traces._PAGE", 2)
    first = run(instance, row=VALUE)
    for _ in range(4):
        run(instance)
    assert found(instance) == {(f"run {first} of Dagster", "events")}


def test_a_plain_value_stands_in_json_as_it_is() -> None:
    assert written_forms("user-4711@example.org") == ["user-4711@example.org"]


def test_logs_that_have_the_value(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert list(logs_with(tmp_path, VALUE)) == []
    logs.mkdir()
    texts = {"spark.log": f"cannot cast {VALUE}", "spark.log.1": f"{VALUE} again", "stack.log": "Mia", "kafka.log": ""}
    for name, text in texts.items():
        (logs / name).write_text(text)
    assert [each.place for each in logs_with(tmp_path, VALUE)] == [str(logs / "spark.log"), str(logs / "spark.log.1")]
