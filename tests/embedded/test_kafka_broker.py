"""The broker: it keeps every acknowledged record, and lives for as long as its supervisor."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from ratify_lakehouse.embedded.embedded_stack import running, status
from ratify_lakehouse.embedded.java_runtime import Java
from ratify_lakehouse.embedded.kafka_broker import Broker, prepare, settings
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.conftest import say
from tests.embedded.test_embedded_stack import eventually, has_ended


def test_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    broker = Broker(Java(tmp_path, 21, "test"), (), tmp_path, 9092, 9093)
    assert settings(broker)["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"


def test_a_password_is_in_a_private_file_only(tmp_path: Path) -> None:
    (password_file := tmp_path / "password").write_text("s3cret\n")
    broker = Broker(Java(tmp_path, 21, "test"), (), tmp_path, 9092, 9093, password_file)
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").touch()
    prepare(broker)
    assert broker.properties.stat().st_mode & 0o777 == 0o600
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and "s3cret" in path.read_text()]
    assert sorted(holders) == [password_file, broker.properties]


@pytest.mark.long
@pytest.mark.stack
def test_a_broker_that_is_killed_comes_back_with_all_its_records(tmp_path: Path, jars_dir: Path) -> None:
    """And ends with its supervisor. `make test` kills one in test_cli.py, and a supervisor in test_embedded_stack.py."""
    config = StackConfig(home=tmp_path, jars_dir=jars_dir, spark=False, kafka=True)
    with running(config, say) as before:
        assert before.kafka is not None
        kafka = Kafka(bootstrap=before.kafka.bootstrap)
        assert kafka.ensure_topic("t", 2)
        with kafka.producer() as producer:
            for number in range(1000):
                producer.produce("t", value=str(number), partition=number % 2)
        os.kill(before.kafka.pid, signal.SIGKILL)

        def back() -> bool:
            state = status(tmp_path)
            return state is not None and state.kafka is not None and state.kafka.pid != before.kafka.pid

        assert eventually(back, 60)
        assert kafka.offset_range(["t"]).latest == {"t": {0: 500, 1: 500}}
        state = status(tmp_path)
        assert state is not None
        assert state.kafka is not None
        assert state.kafka.bootstrap == before.kafka.bootstrap
        os.kill(state.pid, signal.SIGKILL)
        assert eventually(lambda: has_ended(state.kafka.pid))  # type: ignore[union-attr]
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path / "kafka") in (p.info["cmdline"] or [])]
