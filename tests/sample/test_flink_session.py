"""The table that ships for Flink on a session cluster: a TaskManager is killed, and so is the process that watches."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratify_lakehouse.cli.simulate_command import EventKind
from ratify_lakehouse.embedded.private_files import write_private
from ratify_lakehouse.engines.flink.flink_rest import FlinkRest
from ratify_lakehouse.settings import Settings
from tests.components.test_yaml_tables import project
from tests.engines.flink_client import eventually
from tests.engines.session_cluster import SessionCluster
from tests.sample.heart_rates import EVENTS, HeartRates, simulated

__all__ = ["project"]

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]


@pytest.fixture
def cluster(rates: HeartRates, tmp_path: Path, jars_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionCluster]:
    login = tmp_path / "login"
    write_private(login, f"KafkaClient {{ org.apache.flink.kafka.shaded.{rates.kafka.login()} }};\n")
    (folder := tmp_path / "cluster").mkdir()
    cluster = SessionCluster(folder, jars_dir, rates.lake.catalog.bearer_token(), login)
    try:
        monkeypatch.setenv("FLINK_REST", cluster.start())
        yield cluster
    finally:
        cluster.stop()


def test_a_session_cluster_runs_the_job_through_kills(rates: HeartRates, cluster: SessionCluster, tmp_path: Path) -> None:
    events = simulated()
    rates.send(events[: EVENTS // 2])
    killed = subprocess.run(
        [sys.executable, "-m", "tests.components.killed_flink", str(tmp_path), rates.project.root.name], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    # The job goes on without the process that started it, and with another TaskManager.
    cluster.kill_task_manager()
    rates.send(events[EVENTS // 2 :])
    cluster.start_task_manager()
    rest = FlinkRest(Settings().flink_rest)
    eventually(lambda: (job := rest.job(rates.full_name)) and job.state == "RUNNING")
    made = rates.materialized()
    assert made["began at"].startswith("checkpoint ")
    # A partition that was read to its end before a restart holds the windows until it has another record.
    last = max(stamp for _, _, stamp, _ in events)
    rates.send([(key, "{", last, EventKind.MALFORMED) for key in {key for key, _, _, _ in events}])
    rates.materialized()
    rates.check()
    left = rest.job(rates.full_name)
    assert left
    assert left.state == "FINISHED"
