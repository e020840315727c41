"""Flink's SQL client and its cluster, for real. Delta's own connector is in no registry here: it is found missing."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_jars import NEEDED
from ratify_lakehouse.engines.flink.flink_run import FlinkJob, FlinkRun, read_run
from ratify_lakehouse.engines.flink.flink_sql import (
    FlinkTarget,
    Insert,
    StreamInsert,
    TopicSource,
    delta_connector,
    flink_type,
    job_text,
    own_sink,
    stream_text,
)
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable
from ratify_lakehouse.proof.flink_step import OWN, SHARED
from ratify_lakehouse.redaction import redacted
from tests.engines.test_flink_jars import jar

TOKEN = "dapi'0123456789abcdef"  # with a quote, as a literal has to have it
ROOT = Path(__file__).parents[2]

JOB = "3204b563b92dd714ab83e5f8b8da94f1"
FAILURE = """\
org.apache.flink.util.FlinkException: Global failure triggered by OperatorCoordinator
	at org.apache.flink.runtime.Coordinator.fail(Coordinator.java:1)
Caused by: io.delta.kernel.exceptions.CommitFailedException: version 7 is taken
	... 1 more
"""


def archived(
    folder: Path, status: str, failures: Sequence[str], id_: str = JOB, started: int = 1, name: str = "tpch.orders"
) -> Path:
    """Write the archive of a job that ended, with the answers of Flink's REST API that are read."""
    answers = {
        f"/jobs/{id_}": {"jid": id_, "name": name, "state": status, "start-time": started, "duration": 2500},
        f"/jobs/{id_}/checkpoints": {"counts": {"restored": 1, "total": 3, "in_progress": 0, "completed": 2, "failed": 1}},
        f"/jobs/{id_}/exceptions": {"exceptionHistory": {"entries": [{"stacktrace": text} for text in failures]}},
    }
    path = folder / ("0" * 32) / "applications" / id_ / "jobs" / id_
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"archive": [{"path": at, "json": json.dumps(answer)} for at, answer in answers.items()]}))
    return path


@pytest.fixture
def flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flink:
    """Flink on an empty RATIFY_HOME; nothing answers at its catalog."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    for name in ("FLINK_DELTA_JARS", "FLINK_DELTA_PACKAGE"):
        monkeypatch.delenv(name, raising=False)
    return Flink(catalog=UnityCatalog(host="http://127.0.0.1:9", token=TOKEN), checkpoint_seconds=0.5)


def on_files(folder: Path) -> FlinkTarget:
    """The same job on files, with Flink's own catalog and sink in place of the connector's."""
    sink = {"connector": "filesystem", "path": folder.as_uri(), "format": "csv"}
    return FlinkTarget("ratify", "tpch", {"type": "generic_in_memory"}, lambda _: sink)


def test_the_job_is_what_delta_s_connector_asks_for() -> None:
    target = delta_connector("ratify", "tpch", "http://127.0.0.1:8080/", TOKEN)
    text = job_text(target, [OWN, SHARED], {"execution.checkpointing.interval": "2000 ms"})
    options = "'endpoint' = 'http://127.0.0.1:8080', 'token' = 'dapi''0123456789abcdef'"
    assert "SET 'table.dml-sync' = 'true';\n" in text
    assert "SET 'execution.checkpointing.interval' = '2000 ms';\n" in text
    assert f"CREATE CATALOG `ratify` WITH ('type' = 'unitycatalog', {options}, 'default-database' = 'tpch');\n" in text
    for name, first, rows in (("orders_flink", 9_200_000_000, 3000), ("orders", 9_300_000_000, 10)):
        columns = "`o_orderkey` BIGINT, `o_custkey` BIGINT, `o_orderstatus` STRING, `o_totalprice` DECIMAL(15,2), "
        assert f"CREATE TEMPORARY TABLE `ratify`.`tpch`.`{name}` ({columns}" in text
        assert f"WITH ('connector' = 'delta', {options}, 'uid' = 'ratify-tpch-{name}');\n" in text
        assert f"INSERT INTO `ratify`.`tpch`.`{name}` SELECT CAST({first} + seq AS BIGINT) AS `o_orderkey`, " in text
        assert f"'fields.seq.end' = '{rows}')" in text
    assert TOKEN not in repr(target)


def test_the_job_of_our_own_sink_has_no_credentials() -> None:
    text = job_text(own_sink("ratify", "tpch", "http://127.0.0.1:8080"), [OWN], {})
    assert "CREATE CATALOG `ratify` WITH ('type' = 'generic_in_memory', 'default-database' = 'tpch');\n" in text
    options = "'connector' = 'ratify', 'endpoint' = 'http://127.0.0.1:8080', 'uid' = 'ratify-tpch-orders_flink'"
    assert f"WITH ({options});\n" in text


def test_topics_are_read_by_the_isolation_of_the_table() -> None:
    insert = StreamInsert(OWN.table, "uid", [TopicSource("a", "clicks")], {"bootstrap.servers": "b:1"}, "SELECT 1")
    for given, level in ((insert, "read_committed"), (replace(insert, isolation="read_uncommitted"), "read_uncommitted")):
        text = stream_text(own_sink("ratify", "tpch", "http://127.0.0.1:8080"), given, {})
        consumer = f"'properties.group.id' = 'uid', 'properties.isolation.level' = '{level}'"
        assert f"'properties.bootstrap.servers' = 'b:1', {consumer}" in text


@pytest.mark.parametrize(
    ("spark", "flink"),
    [
        ("int", "INT"),
        ("timestamp", "TIMESTAMP_LTZ(6)"),
        ("binary", "BYTES"),
        ("decimal(38, 9)", "DECIMAL(38,9)"),
        ("array<string>", "ARRAY<STRING>"),
        ("map<string, struct<a: int, b: date>>", "MAP<STRING, ROW<`a` INT, `b` DATE>>"),
    ],
)
def test_types_by_flink_s_names(spark: str, flink: str) -> None:
    assert flink_type(spark) == flink


def test_an_archive_has_the_restarts_and_their_reason(tmp_path: Path) -> None:
    job = FlinkJob(
        name="tpch.orders",
        id=JOB,
        status="FINISHED",
        checkpoints=2,
        restarts=1,
        error="io.delta.kernel.exceptions.CommitFailedException: version 7 is taken",
        seconds=2.5,
    )
    archived(tmp_path / "finished", "FINISHED", [FAILURE])
    run = read_run(tmp_path / "finished", "")
    assert run == FlinkRun((job,))
    assert run.succeeded
    archived(tmp_path / "failed", "FAILED", [FAILURE, FAILURE])
    failed = read_run(tmp_path / "failed", "")
    assert failed == FlinkRun((replace(job, status="FAILED"),))
    assert not failed.succeeded


def test_jobs_are_in_the_order_of_their_starts_and_a_cut_archive_is_none(tmp_path: Path) -> None:
    for at, letter in ((2, "a"), (1, "b"), (3, "c")):
        path = archived(tmp_path, "FINISHED", [], id_=letter * 32, started=at, name=f"tpch.{letter}")
    path.write_text(path.read_text()[:100])
    assert [(job.name, job.error) for job in read_run(tmp_path, "").jobs] == [("tpch.b", ""), ("tpch.a", "")]


def test_secrets_are_in_no_error_of_a_run(tmp_path: Path) -> None:
    archived(tmp_path, "FAILED", [f"java.io.IOException: refused {TOKEN}\n\tat a.b(c.java:1)"])
    run = read_run(tmp_path, f"[ERROR] Could not execute SQL statement. Reason:\na.b.SqlException: near {TOKEN}\n", [TOKEN])
    assert run.jobs[0].error == "java.io.IOException: refused ***"
    assert run.error == "a.b.SqlException: near ***"


def test_a_job_without_an_end_is_a_failure(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flink, "execute", lambda *_: FlinkRun((FlinkJob("tpch.orders", JOB, "FINISHED", 1, 0),)))
    with pytest.raises(FlinkFailed, match="the end of 1 of 2 jobs"):
        flink.insert([OWN, SHARED])


def test_secrets_are_taken_out_as_they_are_and_as_sql_has_them() -> None:
    text = redacted(f"token {TOKEN}, 'token' = 'dapi''0123456789abcdef'", [TOKEN, ""])
    assert text == "token ***, 'token' = '***'"


# The jars.


def test_with_half_a_connector_nothing_is_started(flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar(tmp_path / "half" / "delta-flink.jar", *(name for name in NEEDED if name != "jts-core"))
    monkeypatch.setenv("FLINK_DELTA_JARS", str(tmp_path / "half"))
    with pytest.raises(FlinkUnavailable, match=r"it lacks jts-core\."):
        flink.insert([OWN, SHARED])


def test_coordinates_that_no_registry_has_are_named(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINK_DELTA_PACKAGE", "io.delta:delta-flink:0.0.0-none")
    with pytest.raises(
        FlinkUnavailable, match=r"(?s)could not download io\.delta:delta-flink:0\.0\.0-none.*FLINK_DELTA_JARS"
    ):
        flink.insert([OWN, SHARED])


def test_a_java_that_is_none_is_named(flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIFY_JAVA_HOME", str(tmp_path))
    with pytest.raises(FlinkUnavailable, match="is not a Java"):
        flink.execute("SELECT 1;")


# The client and its cluster.


@pytest.mark.long
def test_the_job_runs_on_a_real_cluster_and_the_connector_is_missed(flink: Flink, tmp_path: Path) -> None:
    """The document's job into files; then the catalog of Delta's connector, which Flink does not know."""
    sink = tmp_path / "orders_flink"
    short = Insert(OWN.table, OWN.uid, 300, 300, OWN.columns)
    text = job_text(on_files(sink), [short], {"execution.checkpointing.interval": "300 ms"})
    text += job_text(delta_connector("other", "tpch", "http://127.0.0.1:9", TOKEN), [], {})
    with watched("0123456789abcdef") as (leaks, addresses), pytest.raises(FlinkFailed) as failed:
        flink.execute(text, secrets=[TOKEN])
    assert "Could not find any factory for identifier 'unitycatalog'" in str(failed.value)
    assert "0123456789abcdef" not in str(failed.value)
    assert leaks == []
    assert addresses == {"127.0.0.1"}
    rows = [row for part in sink.rglob("part-*") for row in csv.reader(part.read_text().splitlines())]
    assert sorted(int(row[0]) for row in rows) == list(range(9_200_000_001, 9_200_000_301))
    assert sum(Decimal(row[3]) for row in rows) == sum(seq * 7 % 1000 for seq in range(1, 301))
    assert {(row[2], row[5], row[6], row[7]) for row in rows} == {("O", "3-MEDIUM", "Clerk#external-flink-stream", "0")}


@pytest.mark.long
def test_a_job_that_fails_is_reported_in_flink_s_own_words(flink: Flink) -> None:
    broken = Insert(OWN.table, OWN.uid, 10, 100, ("1 / (seq - 5)", *OWN.columns[1:]))
    restarts = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    target = FlinkTarget("ratify", "tpch", {"type": "generic_in_memory"}, lambda _: {"connector": "blackhole"})
    text = job_text(target, [broken], restarts)
    with pytest.raises(FlinkFailed, match=r"into tpch\.orders_flink ended as FAILED after 2 restarts: .*/ by zero"):
        flink.execute(text)


@contextmanager
def watched(secret: str) -> Iterator[tuple[list[str], set[str]]]:
    """Look, in the block, for a secret in command lines and files, and at the addresses that the client listens on."""
    leaks, addresses, over = list[str](), set[str](), threading.Event()

    def look(client: psutil.Process) -> None:
        command = client.cmdline()
        if secret in " ".join(command):
            leaks.append(f"process {client.name()}")
        # `java -version` asks which Java it is.
        if client.name() == "java" and command[1].startswith("@"):
            found = [c.laddr.ip for c in client.net_connections("tcp") if c.status == "LISTEN"]
            addresses.update(address.removeprefix("::ffff:") for address in found)
            files = [path for path in Path(command[1][1:]).parent.rglob("*") if path.is_file()]
            leaks.extend(str(path) for path in files if secret in path.read_text(errors="replace"))

    def watch() -> None:
        while not over.wait(0.2):
            for process in descendants(os.getpid()):
                with suppress(psutil.Error, FileNotFoundError):
                    look(process)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield leaks, addresses
    finally:
        over.set()
        thread.join()


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def listens(client: psutil.Process) -> bool:
    """Whether the cluster in a client's JVM is up."""
    return any(connection.status == "LISTEN" for connection in client.net_connections("tcp"))


def clients(pid: int) -> list[psutil.Process]:
    """The JVMs of the client below a process."""
    found = list[psutil.Process]()
    for process in descendants(pid):
        with suppress(psutil.Error):
            if process.name() == "java" and process.cmdline()[1].startswith("@"):
                found.append(process)
    return found


PARENT = """
import sys
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.flink.flink_engine import Flink
text = "CREATE TEMPORARY TABLE s (n BIGINT) WITH ('connector'='datagen');" \
       "CREATE TEMPORARY TABLE t (n BIGINT) WITH ('connector'='blackhole');" \
       "SET 'table.dml-sync' = 'true'; INSERT INTO t SELECT n FROM s;"
Flink(catalog=UnityCatalog(host="http://127.0.0.1:9", token="t")).execute(text)
"""


@pytest.mark.parametrize(
    ("how", "at_work"),
    [
        (signal.SIGKILL, False),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.long),
    ],
)
def test_the_client_ends_with_its_parent(flink: Flink, tmp_path: Path, how: signal.Signals, at_work: bool) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as parent:
        try:
            assert eventually(lambda: clients(parent.pid))
            family = descendants(parent.pid)
            assert not at_work or eventually(lambda: [each for each in clients(parent.pid) if listens(each)])
            parent.send_signal(how)
            parent.wait(30)
            ended, alive = psutil.wait_procs(family, timeout=30)
            assert alive == []
            assert len(ended) == len(family) == 2
        finally:
            parent.kill()
    if how is signal.SIGINT:
        assert list(temporary.iterdir()) == []


def eventually(check: Callable[[], list[psutil.Process]], seconds: float = 120) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
