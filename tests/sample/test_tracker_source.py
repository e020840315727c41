"""The tracker's source: without one its tables are left out of a run; files and generated events are taken as well."""

from pathlib import Path

import dagster as dg
import pytest

from orchestration.definitions import defs
from ratify_lakehouse.components.table_asset import step_name
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.engines.lakehouse import Lakehouse
from tests.sample.tracker_declared import EXPECTATIONS, RECORDS, STREAM, TRACKER_EVENTS_RAW

pytestmark = pytest.mark.locks("tables of the shipped events")


@pytest.mark.parametrize(("source", "reason"), [("kafka", "No Kafka: set KAFKA_BOOTSTRAP"), ("files", "set EVENTS_FILES")])
def test_without_a_source_every_step_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("EVENTS_SOURCE", source)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        run = defs.resolve_job_def("events").execute_in_process(instance=instance)
        logged = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert run.success
    first = step_name(TRACKER_EVENTS_RAW)
    ran = {event.step_key for event in run.all_events if event.event_type is dg.DagsterEventType.STEP_SUCCESS}
    skipped = {event.step_key for event in run.all_events if event.event_type is dg.DagsterEventType.STEP_SKIPPED}
    assert ran == {first, "gold__heart_rate_minute_flink"}
    assert {"silver__tracker_events", "gold__heart_rate_minute", "gold__device_daily"} < skipped
    assert not [event for event in run.all_events if event.is_step_failure or event.is_step_materialization]
    assert [line for line in logged if f"{TRACKER_EVENTS_RAW.table_name} is skipped." in line and reason in line]


def test_a_source_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS_SOURCE", "kinesis")
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        assert not defs.resolve_job_def("events").execute_in_process(instance=instance, raise_on_error=False).success


@pytest.mark.stack
def test_generated_events_and_those_in_files_are_ones_that_silver_takes(tracker: Lakehouse, tmp_path: Path) -> None:
    nowhere = Kafka(bootstrap="127.0.0.1:1", timeout_seconds=0.1)
    (folder := tmp_path / "in").mkdir()
    (folder / "a").write_bytes(b'{"user_id": "u", "time": 1767225600000, "model": "m"}\n' * 3)
    (folder / "b").write_bytes(b"no JSON\n")
    for given, rows in (({"source": "rate", "rate": 1500}, 1500), ({"source": "files", "files": str(folder)}, 4)):
        options = SourceOptions(**RECORDS.source.model_dump() | given)
        assert ingest(nowhere, tracker.spark, TRACKER_EVENTS_RAW, options).run.rows == rows
    validated = EXPECTATIONS.validated(STREAM.parsed_sql(tracker.spark, tracker.full(TRACKER_EVENTS_RAW)))
    read = tracker.run(f"SELECT topic LIKE 'files:%' AS landed, user_id, readable, failed FROM ({validated})")
    generated = [row for row in read if not row["landed"]]
    assert (len(generated), [row for row in generated if row["failed"]]) == (1500, [])
    landed = sorted((row["user_id"] or "", row["readable"]) for row in read if row["landed"])
    assert landed == [("", False), *[("u", True)] * 3]
