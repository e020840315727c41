"""What becomes of a Flink job when the catalog's answer is lost, its token ends, its table is restored, or a disk is full.

Whatever happens, the table has each generated row once; where it was restored, each row since then.
"""

import resource
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_run import FlinkJob
from tests.embedded.catalog.harness import WRITE, CatalogProcess, ClientPrincipal, outlive
from tests.engines.faulty_network import CUT, TIME_OUT, Answer, Moment, faulty_network
from tests.engines.flink_client import FlinkClient, eventually, insert, jobs_text, target
from tests.engines.lakehouse import Lakehouse, another_catalog, pairs
from tests.engines.test_principals import oauth_options, spark_of

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]

ROWS, RATE = 8_000, 1_000
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@dataclass
class Running:
    """A job that writes `ROWS` rows, for some seconds, into a table of its own."""

    table: TableDeclaration
    client: FlinkClient
    catalog: UnityCatalog

    @property
    def version(self) -> int:
        return self.catalog.version(self.table.full_name("ratify"))

    def reaches(self, version: int) -> None:
        """Wait until the table has a version, or the job has ended."""
        eventually(lambda: self.client.process.poll() is not None or self.version >= version, 120)

    def ended(self) -> FlinkJob:
        [job] = self.client.wait(300).jobs
        return job


@dataclass
class Starter:
    """Starts jobs."""

    lake: Lakehouse
    folder: Path
    jars_dir: Path

    def start(
        self,
        table: TableDeclaration,
        seen: UnityCatalog,
        options: dict[str, str] | None = None,
        value: str = "'x'",
        **more: str,
    ) -> Running:
        """Start one by the catalog as `seen` from it, with options of its sink, and with more settings."""
        settings = {"execution__checkpointing__dir": self.folder.joinpath("checkpoints").as_uri(), "table__dml_sync": "true"}
        sql = jobs_text(
            target(seen, {table.name: options or {}}), [insert(table, ROWS, ["seq", value], rate=RATE)], **(settings | more)
        )
        client = FlinkClient.start(self.folder, self.jars_dir, sql, seen.bearer_token())
        return Running(table, client, seen)

    def new_table(self) -> TableDeclaration:
        table = pairs(writer=Engine.SPARK)
        self.lake.spark.ensure_table(table)
        return table


@pytest.fixture
def jobs(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> Starter:
    return Starter(lake, tmp_path, jars_dir)


def each_row_once(lake: Lakehouse, table: TableDeclaration) -> None:
    """By Spark and by DuckDB."""
    counted = "SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(id) AS total FROM"
    wanted = {"n": ROWS, "ids": ROWS, "total": ROWS * (ROWS + 1) // 2}
    assert lake.run(f"{counted} {lake.full(table)}") == [wanted]
    with lake.duckdb.session() as session:
        session.attach()
        assert session.records(f"{counted} uc.bronze.{table.name}") == [wanted]


@pytest.mark.parametrize(
    ("moment", "answers"),
    [
        (Moment.AFTER, [CUT, CUT]),
        (Moment.AFTER, [500, 503, CUT]),
        (Moment.BEFORE, [503, 429, 500]),
        (Moment.LATE, [502]),
        (Moment.AFTER, [TIME_OUT]),
    ],
    ids=["cut", "errors", "refused", "late", "silence"],
)
def test_an_answer_that_is_lost(jobs: Starter, moment: Moment, answers: list[Answer]) -> None:
    lake, table = jobs.lake, jobs.new_table()
    with faulty_network(lake.stack.catalog.url) as network:
        seen = UnityCatalog(host=network.url, token=another_catalog(lake.stack).bearer_token())
        running = jobs.start(table, seen)
        running.reaches(1)
        network.spoil(moment, *answers)
        eventually(lambda: network.spoiled == len(answers), 180)
        if moment is Moment.LATE:
            # The job proposes the same files again, and the catalog gets the first proposal after that.
            running.reaches(running.version + 1)
            network.deliver()
        job = running.ended()
    assert (job.status, job.restarts, job.error) == ("FINISHED", 0, "")
    each_row_once(lake, table)
    versions = range(1, lake.version(table) + 1)
    txns = [action["txn"] for version in versions for action in lake.commit(table, version) if "txn" in action]
    assert len(txns) == len({(txn["appId"], txn["version"]) for txn in txns}) == lake.version(table)


def test_a_token_that_ends_in_the_middle(jobs: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = CatalogProcess.start(tmp_path / "catalog", access_token_seconds=2)
    with server.client() as admin:
        principal = ClientPrincipal.create(admin, *WRITE)
        secret = principal.secret()
        monkeypatch.setenv("UNITY_CLIENT_ID", principal.client_id)
        monkeypatch.setenv("UNITY_CLIENT_SECRET", secret)
        catalog = UnityCatalog(host=server.url)
        spark, duckdb = spark_of(jobs.lake, catalog, {"uri": server.url, **oauth_options(catalog)}), DuckDB(catalog=catalog)
        table = pairs(writer=Engine.SPARK)
        spark.ensure_table(table)
        credentials = tmp_path / "credentials"
        credentials.touch(0o600)
        credentials.write_text(f"client-id={principal.client_id}\nclient-secret={secret}\n")
        running = jobs.start(table, catalog, {"credentials-file": str(credentials)})
        running.reaches(1)
        before = running.version
        outlive(admin, catalog.bearer_token())
        running.reaches(before + 2)
        job = running.ended()
        assert (job.status, job.restarts, job.error) == ("FINISHED", 0, "")
        with duckdb.session() as session:
            session.attach()
            assert session.rows(f"SELECT count(*), count(DISTINCT id) FROM uc.bronze.{table.name}") == [(ROWS, ROWS)]
        duckdb.close()
        spark.close()
    assert server.stop() == 0


def test_a_table_that_is_restored(jobs: Starter) -> None:
    lake, table = jobs.lake, jobs.new_table()
    running = jobs.start(table, lake.catalog)
    running.reaches(3)
    # Once more where a commit of the job came first.
    lake.spark.commit(lake.full(table), lambda: lake.run(f"RESTORE TABLE {lake.full(table)} TO VERSION AS OF 1"))
    [restored] = [commit.version for commit in lake.spark.history(lake.full(table)) if commit.operation == "RESTORE"]
    [kept] = lake.run(f"SELECT max(id) AS last FROM {lake.full(table)} VERSION AS OF {restored}")
    [lost] = lake.run(f"SELECT max(id) AS last FROM {lake.full(table)} VERSION AS OF {restored - 1}")
    job = running.ended()
    assert (job.status, job.restarts, job.error) == ("FINISHED", 0, "")
    # What the restore took away stays away: the job appends what comes after it.
    assert [row[0] for row in lake.rows(table)] == [*range(1, kept["last"] + 1), *range(lost["last"] + 1, ROWS + 1)]


def test_a_disk_that_is_full_for_a_while(jobs: Starter) -> None:
    """A limit of the JVM's file size stands in for it: the operating system refuses to write in the same calls."""
    lake, table = jobs.lake, jobs.new_table()
    running = jobs.start(
        table,
        lake.catalog,
        # Values that do not compress: a data file is larger than the limit, and the state of the job is smaller.
        value=f"CONCAT({', '.join(['UUID()'] * 12)})",
        restart_strategy__fixed_delay__attempts="100",
        restart_strategy__fixed_delay__delay="1 s",
    )
    running.reaches(1)
    [jvm] = [each for each in psutil.Process(running.client.process.pid).children(recursive=True) if each.name() == "java"]
    resource.prlimit(jvm.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    stopped_at = running.version
    eventually(lambda: "could not be written" in running.client.output() or running.client.process.poll() is not None)
    resource.prlimit(jvm.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    job = running.ended()
    assert job.status == "FINISHED", job
    assert job.restarts > 0
    assert job.error == "java.io.IOException: File too large"
    assert lake.version(table) > stopped_at
    each_row_once(lake, table)
