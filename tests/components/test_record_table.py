"""A table of records without a source: it is left out of a run, and so is what depends on it."""

from pathlib import Path

import dagster as dg
import pytest

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from components.table_asset import step_name
from orchestration.definitions import defs


@pytest.mark.parametrize(("source", "reason"), [("kafka", "No Kafka: set KAFKA_BOOTSTRAP"), ("files", "set TRACKER_FILES")])
def test_without_a_source_every_step_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("TRACKER_SOURCE", source)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        run = defs.resolve_job_def("events").execute_in_process(instance=instance)
        logged = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert run.success
    first = step_name(TRACKER_EVENTS_RAW)
    ran = {event.step_key for event in run.all_events if event.event_type is dg.DagsterEventType.STEP_SUCCESS}
    skipped = {event.step_key for event in run.all_events if event.event_type is dg.DagsterEventType.STEP_SKIPPED}
    assert ran == {first}
    assert {"silver__tracker_events", "gold__heart_rate_minute", "gold__device_daily"} < skipped
    assert not [event for event in run.all_events if event.is_step_failure or event.is_step_materialization]
    assert [line for line in logged if f"{TRACKER_EVENTS_RAW.table_name} is skipped." in line and reason in line]


def test_a_source_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_SOURCE", "kinesis")
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        assert not defs.resolve_job_def("events").execute_in_process(instance=instance, raise_on_error=False).success
