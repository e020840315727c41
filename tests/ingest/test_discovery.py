"""Discovery in both modes, on real files, a real queue folder and a real SQS API: every file is asked for, and once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer

from ingest.discovery.discover_files import Area, discover
from ingest.discovery.file_index import FileIndex, LoadRequest
from ingest.discovery.notifications import FolderQueue, Queue, queue_of
from ingest.discovery.run_planning import Limits, RunOutcome, plan
from resources.errors import LandingUnavailable
from resources.landing.file_moves import archive
from resources.landing.landing_zone import LandingZone
from resources.settings import Discovery
from tests.ingest.test_notifications import s3_event

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PATTERNS = {"flights_raw": "trips/**/*.csv", "airlines": "reference/airlines*.csv"}
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


@pytest.fixture
def sensor(tmp_path: Path) -> Sensor:
    return Sensor(tmp_path)


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """A server of the S3 and SQS APIs."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    settings = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1", "ENDPOINT_URL": aws}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_listing_finds_files_of_every_source_once(sensor: Sensor) -> None:
    sensor.land(
        "trips/1.csv", "trips/deep/2.csv", "reference/airlines.csv", "reference/unknown.csv", "other/3.csv", "trips/.4.csv"
    )
    assert sensor.tick() == ["reference/airlines.csv", "trips/1.csv", "trips/deep/2.csv"]
    assert sensor.tick() == []


@pytest.mark.parametrize("mode", ["listing", "notification"])
def test_prefix_and_glob_hold_in_both_modes(sensor: Sensor, mode: str) -> None:
    paths = ["trips/2013-01-01.csv", "trips/2013-02-01.csv", "trips/2014-01-01.csv", "reference/airlines.csv"]
    sensor.set(mode=mode, prefix="trips/2013", glob="**/*-01-*.csv", relist_seconds=1e9)
    sensor.land("trips/2013-01-00.csv")
    assert sensor.tick() == ["trips/2013-01-00.csv"]
    sensor.land(*paths, announce=True)
    assert sensor.tick() == ["trips/2013-01-01.csv"]
    # Messages of files that are not looked for are settled at once.
    assert len(sensor.messages()) == (1 if mode == "notification" else 4)
    for _ in range(2):
        sensor.tick()
    assert len(sensor.messages()) == (0 if mode == "notification" else 4)


@pytest.mark.parametrize(
    ("prefix", "folders"),
    [
        ("", ["reference/", "trips/"]),
        ("trips/", ["trips/"]),
        ("trips/2013", ["trips/"]),
        ("trips/a/b", ["trips/a/"]),
        ("x/", []),
    ],
)
def test_only_folders_that_can_hold_matches_are_listed(prefix: str, folders: list[str]) -> None:
    assert Area(PATTERNS, prefix).folders() == folders
    assert Area({**PATTERNS, "all": "*.csv"}, prefix).folders() == (
        [""] if "/" not in prefix else [prefix.rpartition("/")[0] + "/"]
    )


def test_a_listing_goes_on_where_its_time_was_over(sensor: Sensor) -> None:
    paths = [f"trips/{number:05}.csv" for number in range(3500)]
    sensor.land(*paths, "reference/airlines.csv")
    found = [len(sensor.tick(seconds=0)) for _ in range(6)]
    # A page of each folder a tick; then a new listing begins, which finds nothing.
    assert found == [1, 1000, 1000, 1000, 500, 0]
    sensor.land("trips/00000a.csv")
    assert sum(len(sensor.tick(seconds=0)) for _ in range(6)) == 1
    assert set(sensor.asked.values()) == {1}
    assert len(sensor.asked) == 3502


def test_a_file_that_is_deleted_while_a_listing_is_under_way_leaves(sensor: Sensor) -> None:
    sensor.land(*(f"trips/{number:05}.csv" for number in range(1500)))
    sensor.tick()
    for number in (0, 999, 1000, 1499):
        (sensor.home / f"zone/trips/{number:05}.csv").unlink()
    for _ in range(4):
        sensor.tick(seconds=0)
    with FileIndex.opened(sensor.home / "index", sensor.name) as index:
        assert index.counts().known == 1496


def test_a_listed_file_settles_before_it_is_taken(sensor: Sensor) -> None:
    sensor.set(settle_seconds=0.5)
    sensor.land("trips/1.csv")
    assert sensor.tick() == []
    time.sleep(0.3)
    sensor.land("trips/1.csv", content="longer,now\n")
    assert sensor.tick() == []
    time.sleep(0.3)
    assert sensor.tick() == []
    time.sleep(0.3)
    assert sensor.tick() == ["trips/1.csv"]


def test_an_announced_file_need_not_settle(sensor: Sensor) -> None:
    sensor.set(settle_seconds=3600, mode="notification")
    sensor.land("trips/listed.csv")
    assert sensor.tick() == []
    sensor.land("trips/1.csv", announce=True)
    sensor.announce("trips/listed.csv")
    assert sensor.tick() == ["trips/1.csv", "trips/listed.csv"]


@pytest.mark.parametrize("index_lost", [False, True])
def test_only_files_from_now_on(sensor: Sensor, index_lost: bool) -> None:
    sensor.land("trips/old.csv", "trips/older.csv")
    for name in ("old", "older"):
        os.utime(sensor.home / f"zone/trips/{name}.csv", (1, 1))
    sensor.set(include_existing=False)
    sensor.started_at = time.time() - 5
    assert sensor.tick(seconds=0) == []
    if index_lost:
        sensor.name = None
    sensor.land("trips/new.csv")
    # The listing that is under way may be past its name; the next one is not.
    assert [*sensor.tick(), *sensor.tick()] == ["trips/new.csv"]
    # Rewritten after the beginning, it is new; and a late file may have any time.
    sensor.land("trips/old.csv", "trips/late.csv", content="x,y,z\n")
    os.utime(sensor.home / "zone/trips/late.csv", (1, 1))
    assert sensor.tick() == ["trips/late.csv", "trips/old.csv"]


def test_a_wider_area_brings_no_old_files_where_only_new_ones_are_wanted(sensor: Sensor) -> None:
    sensor.land("trips/1.csv", "reference/airlines.csv")
    for path in ("trips/1.csv", "reference/airlines.csv"):
        os.utime(sensor.home / "zone" / path, (1, 1))
    sensor.set(include_existing=False, prefix="trips/")
    sensor.started_at = time.time() - 5
    assert sensor.tick() == []
    sensor.set(prefix="")
    assert sensor.tick() == []
    sensor.land("reference/airlines-2.csv")
    assert sensor.tick() == ["reference/airlines-2.csv"]


def test_a_zone_that_vanishes_is_not_an_empty_one(sensor: Sensor) -> None:
    sensor.land("trips/1.csv")
    sensor.tick()
    (sensor.home / "zone").rename(sensor.home / "away")
    with pytest.raises(LandingUnavailable):
        sensor.tick()
    (sensor.home / "away").rename(sensor.home / "zone")
    assert sensor.tick() == []


def test_files_that_were_moved_are_not_found_again(sensor: Sensor) -> None:
    sensor.set(mode="notification", relist_seconds=1e-9)
    sensor.land("trips/1.csv", announce=True)
    assert sensor.tick() == ["trips/1.csv"]
    (file,) = sensor.zone.files()
    archive(sensor.zone, file.path, file.fingerprint, "_archive")
    sensor.announce("trips/1.csv", "_archive/trips/1.csv")
    assert [sensor.tick() for _ in range(3)] == [[], [], []]
    assert sensor.messages() == []


def test_a_message_stays_until_its_files_are_settled(sensor: Sensor) -> None:
    sensor.set(mode="notification")
    sensor.land("trips/1.csv", announce=True)
    assert sensor.tick() == ["trips/1.csv"]
    (message,) = sensor.messages()
    assert sensor.tick(RunOutcome.RUNNING) == []
    assert sensor.tick(RunOutcome.FAILED) == ["trips/1.csv"]
    assert sensor.messages() == [message]
    sensor.tick(RunOutcome.SUCCEEDED)
    sensor.tick()
    assert sensor.messages() == []
    # The same again, as queues do it: nothing is asked for, and the message goes.
    sensor.announce("trips/1.csv")
    assert sensor.tick() == []
    assert sensor.messages() == []


def test_a_message_whose_file_was_given_up_goes(sensor: Sensor) -> None:
    sensor.set(mode="notification")
    sensor.land("trips/1.csv", announce=True)
    for _ in range(5):
        sensor.tick(RunOutcome.FAILED)
    assert (sensor.asked["trips/1.csv"], sensor.messages()) == (3, [])


def test_rubbish_is_put_aside_and_keeps_nothing_waiting(sensor: Sensor) -> None:
    sensor.set(mode="notification")
    assert isinstance(sensor.queue, FolderQueue)
    for text in ("", "no json", "[]", s3_event("../../outside.csv"), '{"Records": 1}'):
        sensor.queue.put(text)
    sensor.land("trips/1.csv", announce=True)
    sensor.queue.put('{"Service":"Amazon S3","Event":"s3:TestEvent"}')
    assert sensor.tick() == ["trips/1.csv"]
    assert len(sensor.messages()) == 1
    reasons = [json.loads(path.read_text())["reason"] for path in (sensor.home / "bad").glob("*.reason.json")]
    assert len(reasons) == 5
    assert all(reasons)


def test_notifications_that_get_lost_are_caught_by_a_listing(sensor: Sensor) -> None:
    sensor.set(mode="notification", relist_seconds=0.2)
    assert sensor.tick() == []
    sensor.land("trips/1.csv")
    time.sleep(0.25)
    assert sensor.tick() == ["trips/1.csv"]


def test_without_a_notification_nothing_is_listed_before_its_time(sensor: Sensor, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor.set(mode="notification")
    sensor.tick()
    monkeypatch.setattr(LandingZone, "pages", lambda *_: pytest.fail("listed"))
    sensor.land("trips/1.csv", announce=True)
    sensor.land("trips/2.csv")
    assert sensor.tick() == ["trips/1.csv"]


def test_switching_loses_nothing_and_repeats_nothing(sensor: Sensor) -> None:
    rng, landed = random.Random(5), list[str]()  # noqa: S311 no secret
    for number in range(40):
        sensor.set(mode=rng.choice(["listing", "notification"]), relist_seconds=1e9)
        new = [f"trips/{number:02}-{index}.csv" for index in range(rng.randrange(4))]
        sensor.land(*new)
        landed += new
        # Of a file that lands in a time of listing no one may tell; while notifications count, all are told, some twice.
        if sensor.options.mode == "notification":
            sensor.announce(*new)
        sensor.announce(*rng.sample(landed, min(len(landed), 3)))
        sensor.tick()
    for mode in ("listing", "notification", "notification"):
        sensor.set(mode=mode)
        sensor.tick()
    assert sensor.asked == Counter(landed)
    assert sensor.messages() == []


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["land", "announce", "switch", "tick", "rewrite", "lose"]), st.integers(0, 4)), max_size=25
    )
)
def test_every_version_is_asked_for_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    sensor = Sensor(tmp_path_factory.mktemp("sensor"))
    version, index_lost, asked_of = dict[str, int](), False, dict[tuple[str, int], int]()

    def tick() -> None:
        for path in sensor.tick():
            asked_of[path, version[path]] = asked_of.get((path, version[path]), 0) + 1

    for step, number in steps:
        path = f"trips/{number}.csv"
        if step == "land" or (step == "rewrite" and path in version):
            version[path] = version.get(path, 0) + 1
            sensor.land(path, content="x" * version[path])
        elif step == "announce":
            sensor.announce(path)
        elif step == "switch":
            sensor.set(mode="notification" if sensor.options.mode == "listing" else "listing")
        elif step == "lose":
            sensor.name, index_lost = None, True
        elif step == "tick":
            tick()
    # Of a file that lands unannounced in mode notification only a listing tells.
    sensor.set(mode="listing")
    tick()
    assert all((path, last) in asked_of for path, last in version.items())
    assert index_lost or set(asked_of.values()) <= {1}


KILLED = """
import os, signal, sys
from pathlib import Path
from ingest.discovery.run_planning import Outcome
from ingest.discovery.notifications import FolderQueue
from tests.ingest.test_discovery import Sensor
home, name, tick, at = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3]), int(sys.argv[4])
sensor = Sensor(home)
sensor.name, sensor.tick_number = name, tick
sensor.set(mode="notification")
calls, OURS = 0, ("file_index.py", "discovery.py", "notifications.py", "ingestion.py")
def dying(frame, event, argument):
    global calls
    if event == "call" and frame.f_code.co_filename.endswith(OURS):
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(dying)
paths = sensor.tick()
sys.setprofile(None)
print(sensor.name, *paths)
"""


def _tick_that_dies(sensor: Sensor, at: int) -> tuple[bool, list[str]]:
    """A tick in a process of its own, killed at its so-many-th call; what it asked for is lost with it."""
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(sensor.home), sensor.name or "", str(sensor.tick_number), str(at)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    if run.returncode:
        return False, []
    name, *paths = run.stdout.split()
    sensor.name = name
    sensor.tick_number += 1
    return True, paths


@pytest.mark.parametrize(
    "points", [range(20, 200, 40), pytest.param(range(1, 400, 7), marks=pytest.mark.long)], ids=["some", "many"]
)
def test_a_kill_between_message_and_settlement_loses_nothing(sensor: Sensor, points: range) -> None:
    sensor.set(mode="notification")
    sensor.tick()
    landed, requested, kills = list[str](), Counter[str](), 0
    for at in points:
        path = f"trips/{at}.csv"
        sensor.land(path, announce=True)
        landed.append(path)
        ended, paths = _tick_that_dies(sensor, at)
        requested.update(paths)
        kills += not ended
        if ended:
            break
    assert kills >= 3
    ended, paths = _tick_that_dies(sensor, 0)
    requested.update(paths)
    requested.update(sensor.tick())
    assert requested == Counter(landed)
    sensor.tick()
    assert sensor.messages() == []


def test_s3_and_sqs(tmp_path: Path, aws: str, keys: None) -> None:
    boto3.client("s3").create_bucket(Bucket="landing")
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="landed")["QueueUrl"]
    sensor = Sensor(tmp_path, "s3://landing/zone")
    sensor.land("trips/0.csv")
    assert sensor.tick() == ["trips/0.csv"]
    sensor.queue = queue_of(url)
    sensor.set(mode="notification")
    sensor.land("trips/1.csv", "trips/2.csv")
    for text in (
        s3_event("zone/trips/0.csv", "zone/trips/1.csv", bucket="landing"),
        s3_event("zone/trips/1.csv", bucket="landing"),
        s3_event("zone/trips/gone.csv", bucket="landing"),
        s3_event("zone/trips/1.csv", bucket="other"),
        "rubbish",
    ):
        sqs.send_message(QueueUrl=url, MessageBody=text)

    def left() -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        return sum(map(int, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()))

    # The file without a message is found by the listing that the switch begins with.
    assert sensor.tick() == ["trips/1.csv", "trips/2.csv"]
    assert left() == 2
    sensor.tick(RunOutcome.RUNNING)
    assert left() == 2
    sensor.tick(RunOutcome.SUCCEEDED)
    assert sensor.tick() == []
    assert left() == 0
    assert len(list((tmp_path / "bad").glob("*.reason.json"))) == 1
    sensor.set(mode="listing")
    assert sensor.tick() == []


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.long
def test_a_hundred_thousand_files(sensor: Sensor) -> None:
    folder = sensor.home / "zone" / "trips"
    folder.mkdir()
    for number in range(100_000):
        os.close(os.open(folder / f"{number:06}.csv", os.O_CREAT | os.O_WRONLY))
    assert len(sensor.tick()) == 100_000
    sensor.tick()
    later = _timed(sensor.tick)
    # A tick is ended by Dagster after 60 s. Made here, on two shared cores, it takes half a second.
    assert later < 20
    sensor.land("trips/050000a.csv")
    (folder / "000000.csv").unlink()
    assert sensor.tick() == ["trips/050000a.csv"]
    assert set(sensor.asked.values()) == {1}
    with FileIndex.opened(sensor.home / "index", sensor.name) as index:
        assert index.counts().known == 100_000
