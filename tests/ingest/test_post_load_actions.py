"""What is done with the files of a load batch: each by its fate, and by the options."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.ingest.file_source import Rewrite
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome
from ratify_lakehouse.ingest.load.post_load_actions import apply_post_load_actions
from ratify_lakehouse.input_settings import Discovery
from ratify_lakehouse.landing.file_moves import Moved
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.ingest.test_batch_loading import new_source

SOURCE = new_source("code", "name")
FATES = {"loaded": Status.LOADED, "again": Status.REPEATED, "bad": Status.REFUSED}


def batch(zone: LandingZone) -> BatchOutcome:
    root = Path(zone.url)
    (root / "trips").mkdir(parents=True, exist_ok=True)
    for name in FATES:
        (root / "trips" / f"{name}.csv").write_text(name)
    marks = {file.path: file.fingerprint for file in zone.files()}
    files = [
        FileOutcome(path := f"trips/{name}.csv", marks[path], "00", 3, "batch", status, reason="no header")
        for name, status in FATES.items()
    ]
    return BatchOutcome("batch", tuple(files), 1)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"dead_letter": ""}, ["trips/again.csv", "trips/bad.csv", "trips/loaded.csv"]),
        (
            {},
            ["_dead_letter/trips/bad.csv", "_dead_letter/trips/bad.csv.reason.json", "trips/again.csv", "trips/loaded.csv"],
        ),
        ({"after_success": "delete", "dead_letter": ""}, ["trips/bad.csv"]),
        (
            {"after_success": "archive", "archive": "_old", "dead_letter": "_bad"},
            ["_bad/trips/bad.csv", "_bad/trips/bad.csv.reason.json", "_old/trips/again.csv", "_old/trips/loaded.csv"],
        ),
    ],
)
def test_each_file_goes_where_its_fate_and_the_options_say(tmp_path: Path, options: dict[str, Any], left: list[str]) -> None:
    zone = LandingZone(url=str(tmp_path))
    outcome = batch(zone)
    moved = apply_post_load_actions(zone, Discovery(**options), SOURCE, outcome)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == left
    assert set(moved) <= {Moved.DONE}
    # Once more, as after a crash: nothing is left to do.
    again = apply_post_load_actions(zone, Discovery(**options), SOURCE, outcome)
    assert again == {Moved.MISSING: moved.total()} if moved else not again


def test_a_file_that_was_rewritten_since_stays_to_be_found(tmp_path: Path) -> None:
    zone = LandingZone(url=str(tmp_path))
    outcome = batch(zone)
    (tmp_path / "trips" / "loaded.csv").write_text("a later version")
    moved = apply_post_load_actions(zone, Discovery(after_success="delete"), SOURCE, outcome)
    assert moved == {Moved.CHANGED: 1, Moved.DONE: 2}
    assert [file.path for file in zone.files()] == ["trips/loaded.csv"]


def test_a_repeated_file_stays_where_its_rows_may_be_needed_again(tmp_path: Path) -> None:
    zone = LandingZone(url=str(tmp_path))
    outcome = batch(zone)
    replacing = replace(SOURCE, on_rewrite=Rewrite.REPLACE)
    apply_post_load_actions(zone, Discovery(after_success="delete", dead_letter=""), replacing, outcome)
    assert sorted(path.name for path in (tmp_path / "trips").iterdir()) == ["again.csv", "bad.csv"]
