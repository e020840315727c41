"""Corrected records of the tracker come back from quarantine, each once, whatever is killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli.main import app
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.micro_batch import BatchStatements
from ratify_lakehouse.components.stream.quarantine_corrections import Correction, read_corrections, write_corrections
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.errors import BadCorrection
from tests.components.conftest import no_previews
from tests.engines.lakehouse import Lakehouse
from tests.sample.tracker_declared import QUARANTINE, STREAM, TRACKER_EVENTS
from tests.sample.tracker_lake import CORRECTED, NUMBERS, begin_corrected, counts, in_quarantine, silver_rows
from tests.sample.tracker_records import (
    EVENT,
    append,
)

__all__ = ["no_previews"]

pytestmark = [pytest.mark.stack, pytest.mark.locks("tables of the shipped events")]


@pytest.fixture
def corrections(tmp_path: Path) -> Path:
    """Of the records of CORRECTED that can be corrected; one of them still wrongly."""
    right = {
        1: EVENT | {"time": "2026-01-01T12:05:00Z"},
        2: json.dumps(EVENT | {"time": "2026-01-01T12:01:00Z"}),
        # Too late, that is no longer set aside.
        3: EVENT | {"time": "2026-01-01T10:00:00Z"},
        4: EVENT | {"heart_bpm": "still wrong"},
    }
    lines = [
        {"topic": "tracker-events", "partition": 0, "offset": offset, "value": value} for offset, value in right.items()
    ]
    (file := tmp_path / "corrections.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return file


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: str) -> Iterator[None]:
    """Have a replay die before one of the writes of the batch."""
    statements = EventStream.batch_statements

    def with_death(*args: Any, **named: Any) -> BatchStatements:
        return replace(statements(*args, **named), **{at: "SELECT raise_error('died here')"})

    with monkeypatch.context() as patched:
        patched.setattr(EventStream, "batch_statements", with_death)
        yield


def assert_corrected(lake: Lakehouse) -> None:
    offsets = {0: "2026-01-01T12:00:00", 1: "2026-01-01T12:05:00", 2: "2026-01-01T12:01:00"}
    assert {row[-1]: row[1] for row in silver_rows(lake)} == offsets
    assert {place[-1]: reasons for place, reasons in in_quarantine(lake).items()} == {
        4: ("types_as_declared",),
        5: ("user_is_given",),
    }
    found = counts(lake)
    assert found["late"] == 1
    assert records_reconciled(found).passed, records_reconciled(found).description


@pytest.mark.usefixtures("no_previews")
def test_ratify_replay_brings_corrected_records_back_once(tracker: Lakehouse, corrections: Path) -> None:
    append(tracker, CORRECTED)
    begin_corrected(tracker)
    assert set(in_quarantine(tracker)) == {record.place for record in CORRECTED[1:]}
    with pytest.raises(BadCorrection, match="tracker-events/0/0"):
        write_corrections(
            tracker.spark, QUARANTINE, [Correction("tracker-events", 0, 0, b"{}"), *read_corrections(corrections)]
        )
    # Beside the continuous mode, which runs the stream.
    with stream_checkpoints.exclusive(TRACKER_EVENTS):
        done = CliRunner().invoke(app, ["replay", "--corrections", str(corrections), "--json"])
    assert done.exit_code == 0, done.output
    (said,) = json.loads(done.stdout)
    assert_corrected(tracker)
    # Of five, one is wrong still, and one has no key.
    assert (said["replayed"], said["replayed into the table"], said["dagster/row_count"]) == (3, 2, 3)


@pytest.mark.long
def test_ratify_replay_finishes_one_that_was_killed(
    tracker: Lakehouse, corrections: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tracker, CORRECTED)
    STREAM.run(tracker.spark)
    # It dies when silver has the events and the ledger has no line yet.
    with dying(monkeypatch, "account"):
        died = CliRunner().invoke(app, ["replay", "silver.tracker_events", "--corrections", str(corrections)])
    assert died.exit_code == 1
    assert "died here" in f"{died.output}{died.exception}"
    assert not records_reconciled(counts(tracker)).passed
    done = CliRunner().invoke(app, ["replay", "--corrections", str(corrections), "--json"])
    assert done.exit_code == 0, done.output
    (said,) = json.loads(done.stdout)
    assert_corrected(tracker)
    assert (said["replayed"], said["replayed into the table"], said["dagster/row_count"]) == (3, 2, 3)


@pytest.mark.long
def test_ratify_replay_refuses_corrections_of_what_is_not_in_quarantine(tracker: Lakehouse, tmp_path: Path) -> None:
    append(tracker, CORRECTED)
    STREAM.run(tracker.spark)
    (file := tmp_path / "c.jsonl").write_text('{"topic": "tracker-events", "partition": 0, "offset": 99, "value": ""}')
    failed = CliRunner().invoke(app, ["replay", "silver.tracker_events", "--corrections", str(file)])
    assert failed.exit_code == 1
    assert "tracker-events/0/99" in failed.output


@pytest.mark.long
@pytest.mark.parametrize("at", ["merge", "quarantine", "account"])
def test_a_replay_may_die_before_any_of_its_writes_and_a_rebuild_keeps_what_it_did(
    tracker: Lakehouse, corrections: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    append(tracker, CORRECTED)
    STREAM.run(tracker.spark)
    write_corrections(tracker.spark, QUARANTINE, read_corrections(corrections))
    with dying(monkeypatch, at), pytest.raises(Exception, match="died here"):
        STREAM.replay(tracker.spark)
    assert STREAM.replay(tracker.spark).numbers["accepted"] == 2
    assert_corrected(tracker)

    rows, found = silver_rows(tracker), counts(tracker)
    assert STREAM.replay(tracker.spark).numbers == dict.fromkeys(NUMBERS, 0)
    write_corrections(tracker.spark, QUARANTINE, read_corrections(corrections))
    STREAM.run(tracker.spark, full_refresh=True)
    assert silver_rows(tracker) == rows
    assert set(in_quarantine(tracker)) == {record.place for record in CORRECTED[4:]}
    assert counts(tracker) | {"bronze": found["bronze"]} == found
    assert STREAM.replay(tracker.spark).numbers["accepted"] == 0


def test_corrections_are_read_or_refused_as_a_whole(tmp_path: Path) -> None:
    (file := tmp_path / "c.jsonl").write_text('{"topic": "t", "partition": 0, "offset": 1, "value_base64": "AAE="}\n\n')
    assert read_corrections(file) == [Correction("t", 0, 1, b"\0\1")]
    for bad in (
        "{",
        "[]",
        '{"topic": "t"}',
        '{"topic": "t", "partition": 0, "offset": "x", "value": 1}',
        '{"topic": "t", "partition": 0, "offset": 1, "value_base64": "?"}',
    ):
        file.write_text(f'{{"topic": "t", "partition": 0, "offset": 1, "value": {{}}}}\n{bad}')
        with pytest.raises(BadCorrection, match="line 2"):
            read_corrections(file)
