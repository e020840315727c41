"""Discovery by notifications, in a queue folder and in a real SQS API: no message is lost, and none blocks another."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from ratify_lakehouse.ingest.discovery.notifications import FolderQueue, queue_of
from ratify_lakehouse.ingest.discovery.run_planning import RunOutcome
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.ingest.discovery_sensor import Sensor
from tests.ingest.test_notifications import s3_event

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]


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


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.ingest.discovery_sensor import Sensor
home, name, tick, at = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3]), int(sys.argv[4])
sensor = Sensor(home)
sensor.name, sensor.tick_number = name, tick
sensor.set(mode="notification")
calls, OURS = 0, ("file_index.py", "discover_files.py", "notifications.py", "run_planning.py")
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
