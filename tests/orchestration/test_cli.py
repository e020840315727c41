"""The `ratify` command as a person types it, in homes of its own, and what is left of a process that is killed."""

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from orchestration.project_tables import event_stream
from tests.embedded.catalog.harness import CatalogProcess
from tests.orchestration.ratify_command import RATIFY, environment, invoke, ratify

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


def test_a_wrong_token_is_named(elsewhere: CatalogProcess, new_home: Path) -> None:
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


@pytest.mark.stack
def test_up_history_sql_status_down(new_home: Path) -> None:
    assert ratify(new_home, "up", "--kafka").returncode == 0
    status = json.loads(ratify(new_home, "status", "--json").stdout)
    assert set(status) >= {"catalog", "spark", "kafka"}
    assert set(status["kafka"]) >= {"bootstrap", "pid"}
    sent = json.loads(
        invoke(new_home, "simulate", "tracker", "--events", "500", "--rate", "0", "--bad", "50%", "--json").stdout
    )
    assert (sent["records"], sum(sent["kinds"].values())) == (500, 500)
    assert set(status["catalog"]) >= {"url", "name", "token_file", "pid"}
    assert set(status["spark"]) >= {"remote", "pid"}
    assert Path(status["catalog"]["token_file"]).stat().st_mode & 0o777 == 0o600
    # Of a catalog that has no schema yet.
    assert "12345" in invoke(new_home, "sql", "SELECT 12345 AS id", "--engine", "duckdb").stdout
    made = "CREATE TABLE bronze.t (id BIGINT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')"
    for statement in ("CREATE SCHEMA IF NOT EXISTS bronze", made, "INSERT INTO bronze.t VALUES (1), (2)"):
        assert invoke(new_home, "sql", statement).returncode == 0, statement
    assert invoke(new_home, "sql", "INSERT INTO uc.bronze.t VALUES (3)", "--engine", "duckdb").returncode == 0
    for engine, type_ in {"spark": "TIMESTAMP", "duckdb": "TIMESTAMPTZ"}.items():
        query = f"SELECT sum(id) AS total, {type_} '2026-01-01 12:00:00Z' AS at FROM bronze.t"
        asked = ratify(new_home, "sql", query, "--json", "--engine", engine, TZ="America/New_York")
        assert json.loads(asked.stdout) == [{"total": 6, "at": "2026-01-01 12:00:00+00:00"}], engine
    wrong = invoke(new_home, "sql", "SELECT [id] FROM bronze.t")
    assert wrong.returncode == 1
    assert "QueryFailed: [PARSE_SYNTAX_ERROR]" in wrong.stderr
    assert "SELECT [id]" in wrong.stderr
    assert "org.apache.spark" not in wrong.stderr
    # A process: PySpark logs to the standard error stream that it has found at its start.
    wrong = ratify(new_home, "sql", "SELECT idd FROM bronze.t")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("QueryFailed: [UNRESOLVED_COLUMN"), wrong.stderr
    assert len(wrong.stderr.splitlines()) < 10, wrong.stderr
    for missing in ("bronze.tt", "t"):
        unknown = invoke(new_home, "history", missing)
        assert unknown.returncode == 1
        # A sentence, however wide the terminal is that pytest was started in.
        assert unknown.stderr.startswith("TableMissing: "), unknown.stderr
        assert len(unknown.stderr) < 300, unknown.stderr
    assert invoke(new_home, "sql", "SELECT 12345 AS id").stdout.splitlines()[0].strip() == "1 row"
    commits = json.loads(invoke(new_home, "history", "bronze.t", "--json").stdout)
    assert [(c["version"], c["engine"]) for c in commits] == [(2, "DuckDB"), (1, "Spark"), (0, "Spark")]
    assert "say why" in invoke(new_home, "acknowledge", "bronze.t", "2").stderr
    (made,) = json.loads(invoke(new_home, "acknowledge", "bronze.t", "2", "--reason", "by hand", "--json").stdout)
    assert (made["version"], made["operation"], made["engine"], made["reason"]) == (2, "UNKNOWN", "DuckDB", "by hand")
    assert json.loads(invoke(new_home, "acknowledge", "bronze.t", "--json").stdout) == [made]
    ours = [psutil.Process(pid) for pid in (status["catalog"]["pid"], status["spark"]["pid"], status["pid"])]
    assert ratify(new_home, "down").returncode == 0
    _, alive = psutil.wait_procs(ours, timeout=10)
    assert not alive


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
