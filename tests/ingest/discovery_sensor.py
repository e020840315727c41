"""The sensor's ticks on a landing zone and a queue of a test."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from ratify_lakehouse.ingest.discovery.discover_files import discover
from ratify_lakehouse.ingest.discovery.file_index import FileIndex, LoadRequest
from ratify_lakehouse.ingest.discovery.notifications import FolderQueue, Queue
from ratify_lakehouse.ingest.discovery.run_planning import Limits, RunOutcome, plan
from ratify_lakehouse.input_settings import Discovery
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.ingest.test_notifications import s3_event

PATTERNS = {"orders": "trips/**/*.csv", "products": "reference/products*.csv"}
LIMITS = Limits(files=100, size=1 << 30, requests=1000, open=10_000)


class Sensor:
    """The sensor's ticks without Dagster: an index on disk, opened for each, and what was asked for."""

    def __init__(self, home: Path, zone: str | None = None) -> None:
        self.home = home
        self.zone = LandingZone(url=zone or str(home / "zone"))
        self.queue: Queue = FolderQueue(home / "queue")
        self.options = Discovery()
        self.name: str | None = None
        self.tick_number = 0
        self.started_at = 0.0
        self.asked = Counter[str]()
        if zone is None:
            (home / "zone").mkdir(exist_ok=True)

    def set(self, **options: Any) -> None:
        self.options = Discovery(**{**self.options.model_dump(), **options})

    def land(self, *paths: str, content: str = "a,b\n", announce: bool = False) -> None:
        with self.zone.opened() as (fs, root):
            for path in paths:
                fs.makedirs(f"{root}/{path}".rpartition("/")[0], exist_ok=True)
                fs.pipe_file(f"{root}/{path}", content.encode())
        if announce:
            self.announce(*paths)

    def announce(self, *paths: str) -> None:
        assert isinstance(self.queue, FolderQueue)
        for path in paths:
            self.queue.put(s3_event(path))

    def tick(self, outcome: RunOutcome = RunOutcome.SUCCEEDED, seconds: float = 60) -> list[str]:
        """One tick; returns the paths that it asks for."""
        with FileIndex.opened(self.home / "index", self.name) as index:
            self.name = index.name
            queue = self.queue if self.options.mode == "notification" else None
            discover(index, self.zone, self.options, PATTERNS, queue, self.home / "bad", self.started_at, seconds)
            asked = self.plan(index, outcome)
        self.tick_number += 1
        paths = sorted(path for request in asked for files in request.files.values() for path in files)
        self.asked.update(paths)
        return paths

    def plan(self, index: FileIndex, outcome: RunOutcome) -> list[LoadRequest]:
        return plan(
            index,
            list(PATTERNS),
            lambda _: outcome,
            LIMITS,
            requested=self.tick_number,
            settle_seconds=self.options.settle_seconds,
            now=time.time(),
        )

    def messages(self) -> list[str]:
        assert isinstance(self.queue, FolderQueue)
        return sorted(path.name for path in self.queue.folder.glob("*.json"))
