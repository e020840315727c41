"""`ratify replay` beside another one of the same sync. What a replay does: `tests/components/test_sync_dead_letters.py`."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from ratify_lakehouse.cli import replay_run
from ratify_lakehouse.cli.replay_run import replay_sync
from ratify_lakehouse.components.syncs.dead_letter_replay import ReplayedLetters
from ratify_lakehouse.components.syncs.sync_declaration import SyncStrategy
from tests.components.declared_syncs import declared, table


def test_two_replays_of_a_sync_do_not_overlap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    began, goes_on, waits = threading.Event(), threading.Event(), threading.Event()
    steps, said = list[str](), list[str]()

    @contextmanager
    def no_engines() -> Generator[Mock]:
        yield Mock()

    def replay(*_: object) -> ReplayedLetters:
        steps.append("begins")
        began.set()
        assert goes_on.wait(60)
        steps.append("ends")
        return ReplayedLetters(1, 0)

    def progress(message: str) -> None:
        said.append(message)
        waits.set()

    monkeypatch.setattr(replay_run, "engines", no_engines)
    monkeypatch.setattr(replay_run, "replayed", replay)
    monkeypatch.setattr(replay_run, "progress", progress)
    sync, other = (declared(name, SyncStrategy.APPEND, table("orders")) for name in ("customers", "products"))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(replay_sync, sync)
        assert began.wait(60)
        second = threads.submit(replay_sync, sync)
        assert waits.wait(60)
        assert steps == ["begins"]
        goes_on.set()
        assert [first.result(60), second.result(60)] == [{"replayed": 1, "waiting": 0}] * 2
    assert steps == ["begins", "ends"] * 2
    assert len(said) == 1
    assert said[0].startswith("waiting for another replay of customers, held by process ")
    # One of another sync does not wait for it.
    with replay_run.exclusive(tmp_path / "syncs" / "customers.replay.lock", said.append, "nothing"):
        assert replay_sync(other) == {"replayed": 1, "waiting": 0}
