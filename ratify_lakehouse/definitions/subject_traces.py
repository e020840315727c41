"""Where the value of a subject is left beside tables and files: in runs of Dagster, and in the logs of the stack."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

import dagster as dg
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._serdes import serialize_value

from ratify_lakehouse.definitions.erasure_plan import ErasurePlan, Remaining

_PAGE = 100
_WHY = "a message, a tag, a query or a printed line has the value"


def with_traces(plan: ErasurePlan, instance: dg.DagsterInstance, home: Path, value: str) -> ErasurePlan:
    """Return a plan that also has the runs of an instance, and the logs in RATIFY_HOME, with the value of its subject."""
    return replace(plan, others=[*plan.others, *runs_with(instance, value), *logs_with(home, value)])


def runs_with(instance: dg.DagsterInstance, value: str) -> Iterator[Remaining]:
    """Yield what has a value: events and configurations of runs, and what was captured of their output."""
    forms = written_forms(value)
    for run in _runs(instance):
        events = instance.all_logs(run.run_id)
        parts = [
            *(["configuration"] if _has(serialize_value(run), forms) else []),
            *(["events"] if any(_has(event.to_json(), forms) for event in events) else []),
        ]
        if parts:
            until = f"`dagster run delete {run.run_id}`"
            yield Remaining(f"run {run.run_id} of Dagster", " and ".join(parts), until, _WHY)
        yield from _output(instance, run.run_id, events, forms)
    if any(_has(event.to_json(), forms) for event in instance.all_logs(RUNLESS_RUN_ID)):
        yield Remaining("events of no run in Dagster", "events", "the asset is wiped in the UI", _WHY)


def logs_with(home: Path, value: str) -> Iterator[Remaining]:
    """Yield the logs of the stack's servers that have a value."""
    for file in sorted((home / "logs").glob("*.log*")):
        if file.stat().st_size:
            with file.open("rb") as log, mmap(log.fileno(), 0, access=ACCESS_READ) as content:
                found = content.find(value.encode()) >= 0
            if found:
                yield Remaining(str(file), "messages", "it is deleted by hand, after `ratify down`", "one has the value")


def written_forms(value: str) -> Sequence[str]:
    """Return how a value stands in JSON, also in JSON that is a text in JSON; each once."""
    forms = {value}
    for _ in range(3):
        forms |= {json.dumps(form, ensure_ascii=ascii_)[1:-1] for form in forms for ascii_ in (True, False)}
    return sorted(forms)


def _has(text: str, forms: Sequence[str]) -> bool:
    return any(form in text for form in forms)


def _runs(instance: dg.DagsterInstance) -> Iterator[dg.DagsterRun]:
    """All runs, the newest first."""
    page: Sequence[dg.DagsterRun] = instance.get_runs(limit=_PAGE)
    while page:
        yield from page
        page = instance.get_runs(limit=_PAGE, cursor=page[-1].run_id)


def _output(
    instance: dg.DagsterInstance, run_id: str, events: Sequence[dg.EventLogEntry], forms: Sequence[str]
) -> Iterator[Remaining]:
    logs = instance.compute_log_manager
    captured = [event.dagster_event.logs_captured_data for event in events if event.dagster_event and _is_captured(event)]
    for key in dict.fromkeys(each.file_key for each in captured):
        log_key = logs.build_log_key_for_run(run_id, key)
        # What others have deleted is not there.
        with suppress(OSError):
            data, places = logs.get_log_data(log_key), logs.get_log_metadata(log_key)
            for content, place in ((data.stdout, places.stdout_location), (data.stderr, places.stderr_location)):
                if content and _has(content.decode(errors="replace"), forms):
                    yield Remaining(place or f"run {run_id} of Dagster", "captured output", "it is deleted by hand", _WHY)


def _is_captured(event: dg.EventLogEntry) -> bool:
    return event.dagster_event_type is dg.DagsterEventType.LOGS_CAPTURED
