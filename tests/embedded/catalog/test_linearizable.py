"""Many writers on one table while the server is killed with -9 again and again: the table's history stays one line.

Each writer does what a Delta writer does: load, propose the next version, and when no answer comes, propose the same again.
What is asserted is that the versions are gapless and unique, and that each acknowledged commit is there exactly once.
"""

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from sqlite3 import connect

import httpx
import pytest

from ratify_lakehouse.embedded.catalog.store.table_updates import REPLAY_WINDOW
from tests.embedded.catalog.harness import CatalogProcess, TableClient, add_commit, error_of, published, staged_file

pytestmark = pytest.mark.server


@dataclass
class Chaos:
    """One server on a fixed port, killed at seeded moments, and the answers that its writers got."""

    home: Path
    random: random.Random
    kills: int
    acknowledged: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.server = CatalogProcess.start(self.home, port=self.port)

    def kill_and_restart(self, progress: Callable[[], float]) -> None:
        """Kill at random points of the work: moments of its own choice, not of the clock's, so that each kill meets work."""
        moments = sorted(self.random.uniform(0.02, 0.9) for _ in range(self.kills))
        for moment in moments:
            while progress() < moment:
                time.sleep(0.001)
            self.server.kill()
            self.server = CatalogProcess.start(self.home, port=self.port)

    def acknowledge(self, version: int, file_name: str) -> None:
        with self.lock:
            self.acknowledged.append((version, file_name))


def insistent(send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send until an answer comes, as a client that lost its connection does."""
    while True:
        try:
            return send()
        except httpx.TransportError:
            time.sleep(0.02)


def write(chaos: Chaos, table: TableClient, commits: int) -> None:
    """Make a number of commits, each ratified once, publishing as it goes."""
    with chaos.server.client() as client:
        mine = TableClient(client, table.path, table.table_id, table.location)
        for _ in range(commits):
            while True:
                loaded = insistent(lambda: client.get(mine.path)).raise_for_status().json()
                version = loaded["latest-table-version"] + 1
                file_name = staged_file(version)
                answer = insistent(lambda v=version, f=file_name: mine.update(add_commit(v, f)))
                if answer.status_code == 200:
                    break
                assert error_of(answer) in {(409, "CommitVersionConflictException"), (429, "ResourceExhaustedException")}
                insistent(lambda v=version - 1: mine.update(published(v)))
            chaos.acknowledge(version, file_name)
            insistent(lambda v=version: mine.update(published(v)))


def run(home: Path, *, seed: int, writers: int, commits: int, kills: int) -> None:
    chaos = Chaos(home, random.Random(seed), kills)  # noqa: S311 it chooses moments, not keys
    with chaos.server.client() as client:
        client.post("/schemas", json={"name": "s", "catalog_name": "ratify"}).raise_for_status()
        table = TableClient.create(client, "s", "t")
    total = writers * commits
    # Every other writer spells the names in another case: it is the same table.
    shouted = replace(table, path="/T".join(table.path.replace("/s/", "/S/").rsplit("/t", 1)))
    threads = [threading.Thread(target=write, args=(chaos, one, commits)) for one in [table, shouted] * (writers // 2)]
    for thread in threads:
        thread.start()
    chaos.kill_and_restart(lambda: len(chaos.acknowledged) / total)
    for thread in threads:
        thread.join()

    assert sorted(version for version, _ in chaos.acknowledged) == list(range(1, total + 1))
    assert len({file_name for _, file_name in chaos.acknowledged}) == total
    with chaos.server.client() as client:
        loaded = client.get(table.path).json()
    assert (loaded["latest-table-version"], loaded["commits"]) == (total, [])
    chaos.server.stop()
    with closing(connect(home / "state" / "catalog.sqlite")) as database:
        stored = database.execute("SELECT version, file_name FROM commits ORDER BY version").fetchall()
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    # Published commits stay for a while, for writers that lost their answer; those that are stored are the acknowledged.
    assert len(stored) >= min(total, REPLAY_WINDOW)
    assert stored == sorted(chaos.acknowledged)[-len(stored) :]


def test_every_acknowledged_commit_is_there_once(tmp_path: Path) -> None:
    run(tmp_path, seed=1, writers=8, commits=10, kills=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_every_acknowledged_commit_is_there_once_at_length(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed=seed, writers=32, commits=50, kills=10)
