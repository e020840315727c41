"""`ratify hook` as a process: what it answers over HTTP, and that an accepted message is there whatever happens next."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratify_lakehouse.ingest.discovery.notifications import MAX_BYTES
from tests.ingest.discovery_sensor import Sensor
from tests.ingest.test_notifications import s3_event

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]


@dataclass
class Hook:
    """The running command."""

    home: Path
    url: str
    token: str
    process: subprocess.Popen[str]

    def post(self, content: str | bytes | Iterator[bytes], token: str | None = None) -> httpx.Response:
        """Send a message; with no token where it is empty, with the right one where it is None."""
        given = self.token if token is None else token
        return httpx.post(
            self.url, content=content, headers={"Authorization": f"Bearer {given}"} if given else {}, timeout=30
        )

    def messages(self) -> list[str]:
        return sorted(path.read_text() for path in (self.home / "queue").glob("*.json"))


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    """One for a test that ends it, or sends it what it accepts."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def lasting_hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """One for all tests that leave it as they found it."""
    with running(tmp_path_factory.mktemp("hook")) as started:
        yield started


@contextmanager
def running(home: Path) -> Iterator[Hook]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from ratify_lakehouse.cli.main import app; app()", "hook", "--port", "0"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RATIFY_HOME": str(home), "COLUMNS": "500"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    url = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert url
    started = Hook(home, url[0], (home / "secrets" / "hook.token").read_text(), process)
    _wait(started)
    yield started
    process.kill()
    process.wait()
    process.stdout.close()


def _wait(hook: Hook) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(retries=50)) as client:
        client.get(hook.url, timeout=30)


def test_a_message_is_kept_and_found_by_the_sensor(hook: Hook) -> None:
    sensor = Sensor(hook.home)
    sensor.set(mode="notification")
    sensor.tick()
    sensor.land("trips/1.csv", "trips/2.csv")
    text = s3_event("trips/1.csv")
    assert hook.post(text).status_code == 202
    # Accepted is accepted, even when the hook dies the moment after.
    hook.process.send_signal(signal.SIGKILL)
    hook.process.wait()
    assert hook.messages() == [text]
    assert sensor.tick() == ["trips/1.csv"]


def _chunks() -> Iterator[bytes]:
    for _ in range(MAX_BYTES // 1000 + 2):
        yield b" " * 1000


@pytest.mark.parametrize(
    ("content", "token", "status", "message"),
    [
        (s3_event("trips/1.csv"), "", 401, "Authorization"),
        (s3_event("trips/1.csv"), "wrong", 401, "Authorization"),
        ("rubbish", None, 400, "no JSON"),
        (b"\xff\xfe", None, 400, "decode"),
        ('{"Records": [{}]}', None, 400, "Field required"),
        (_chunks, None, 413, "at most"),
    ],
)
def test_what_is_refused_is_not_kept(lasting_hook: Hook, content: Any, token: str | None, status: int, message: str) -> None:
    answer = lasting_hook.post(content() if callable(content) else content, token)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert lasting_hook.messages() == []


def test_the_secret_is_its_owners_alone_and_lasts(lasting_hook: Hook) -> None:
    assert ((lasting_hook.home / "secrets" / "hook.token").stat().st_mode & 0o777) == 0o600
    assert len(lasting_hook.token) >= 32
    assert httpx.get(lasting_hook.url).status_code == 405


def test_ctrl_c_ends_it(hook: Hook) -> None:
    hook.process.send_signal(signal.SIGINT)
    assert hook.process.wait(30) == 0


def test_a_queue_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from ratify_lakehouse.cli.main import app

    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    monkeypatch.setenv("DISCOVERY_QUEUE", "https://sqs.us-east-1.amazonaws.com/1/q")
    answer = CliRunner().invoke(app, ["hook"])
    assert answer.exit_code == 1
    assert "needs a folder" in answer.stderr
