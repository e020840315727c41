"""The `ratify` command as a person types it, in homes of its own, and what is left of a process that is killed.

tests/smoke/test_command_line.py has it on a stack with Spark.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from ratify_lakehouse.definitions.project_tables import event_stream
from ratify_lakehouse.embedded.embedded_stack import status as stack_status
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.cli.ratify_command import RATIFY, environment, invoke, ratify
from tests.embedded.catalog.harness import CatalogAddress
from tests.embedded.test_embedded_stack import eventually

pytestmark = pytest.mark.server


def test_without_a_stack_the_error_says_what_to_do(tmp_path: Path) -> None:
    asked = invoke(tmp_path, "sql", "SELECT 1")
    assert asked.returncode == 1
    assert "NotConfigured" in asked.stderr
    assert "ratify up" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_status_of_nothing(tmp_path: Path) -> None:
    assert invoke(tmp_path, "status").returncode == 3
    asked = invoke(tmp_path, "status", "--json")
    assert (asked.returncode, json.loads(asked.stdout)) == (3, {})


def test_land_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = json.loads(invoke(tmp_path, "land", "2", "--json").stdout)
    second = json.loads(invoke(tmp_path, "land", "1", "--json").stdout)
    assert [file["file"] for file in first][-2:] == ["trips/2013-01-01.csv", "trips/2013-01-02.csv"]
    assert second == [{"file": "trips/2013-01-03.csv", "rows": 914}]
    assert len((tmp_path / "landing/trips/2013-01-01.csv").read_text().splitlines()) == 843


def test_dev_says_that_its_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        asked = invoke(tmp_path, "dev", "--port", str(port))
    assert asked.returncode == 1
    assert f"port {port}" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_an_unsuitable_java_is_refused(tmp_path: Path) -> None:
    asked = invoke(tmp_path, "setup", RATIFY_JAVA_HOME=str(tmp_path / "no-java"))
    assert asked.returncode == 1
    assert "UnsuitableJava" in asked.stderr
    assert str(tmp_path / "no-java") in asked.stderr.replace("\n", "")


def test_a_wrong_token_is_named(elsewhere: CatalogAddress, new_home: Path) -> None:
    asked = invoke(
        new_home,
        "sql",
        "SELECT 1",
        "--engine",
        "duckdb",
        UNITY_HOST=elsewhere.url,
        UNITY_TOKEN="wrong",
        UNITY_CATALOG="main",
    )
    assert asked.returncode == 1
    assert "CatalogDenied" in asked.stderr
    assert "UNITY_TOKEN" in asked.stderr


def test_a_broker_comes_and_goes_with_the_stack_and_comes_back_with_its_records(new_home: Path) -> None:
    """With Spark the stack is that of tests/smoke."""
    assert ratify(new_home, "up", "--kafka", SPARK_REMOTE="sc://127.0.0.1:1").returncode == 0
    status = json.loads(invoke(new_home, "status", "--json").stdout)
    assert status["spark"] is None
    assert set(status["kafka"]) >= {"bootstrap", "pid"}
    sent = json.loads(
        invoke(new_home, "simulate", "tracker", "--events", "500", "--rate", "0", "--bad", "50%", "--json").stdout
    )
    assert (sent["records"], sum(sent["kinds"].values())) == (500, 500)
    bootstrap, pid = status["kafka"]["bootstrap"], the_broker_comes_back(new_home, status["kafka"]["pid"])
    latest = Kafka(bootstrap=bootstrap).offset_range([sent["topic"]]).latest
    assert sum(latest[sent["topic"]].values()) == sent["records"]
    ours = [psutil.Process(pid) for pid in (status["catalog"]["pid"], pid, status["pid"])]
    assert invoke(new_home, "down").returncode == 0
    _, alive = psutil.wait_procs(ours, timeout=10)
    assert not alive


def the_broker_comes_back(home: Path, before: int) -> int:
    """Kill it; return the process id of the next one."""
    os.kill(before, signal.SIGKILL)

    def back() -> bool:
        state = stack_status(home)
        return state is not None and state.kafka is not None and state.kafka.pid != before

    assert eventually(back)
    state = stack_status(home)
    assert state is not None
    assert state.kafka is not None
    return state.kafka.pid


@pytest.mark.stack
@pytest.mark.long
def test_the_streaming_demo_accounts_for_every_record_also_after_one_that_was_killed(new_home: Path) -> None:
    """kill -9 when the first events are sent: its successor reads them, too, and stops all that it started."""
    command = ["demo", "--streaming", "--events", "1000"]
    killed = subprocess.Popen(
        [RATIFY, *command], env=environment(new_home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert killed.stdout is not None
    for line in killed.stdout:
        if "running the events" in line:
            break
    family = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.wait(10)
    killed.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    demo = ratify(new_home, *command)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    equations = re.findall(
        r"produced ([\d,]+) = silver (\d+) \+ dropped 0 \+ quarantine (\d+) \+ duplicates (\d+) \+ late (\d+)", demo.stdout
    )
    assert [sum(map(int, fates)) for _, *fates in equations] == [1000, 1000]
    assert "Every record is accounted for" in demo.stdout
    assert [rule.name for rule in event_stream().expectations.all if rule.name not in demo.stdout] == []
    assert "failed by design" in demo.stdout


def test_the_readme_names_commands_that_exist() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.split("## The command line")[1].split("```")[1]
    words = [line.split()[1] for line in block.strip().splitlines()]
    described = subprocess.run([RATIFY, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert words
    assert all(word in described for word in words)
    targets = subprocess.run(
        [shutil.which("make") or "make", "help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout
    assert all(target in targets for target in ("demo", "dev", "test", "test-unit", "lint", "bench", "setup"))
