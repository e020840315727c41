"""A Flink job on a session cluster whose processes are killed again and again, beside other writers of its table.

The long form. `RATIFY_SEED` repeats the order of the kills; their moments depend on the machine.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_rest import FlinkRest, JobState
from ratify_lakehouse.errors import RatifyError
from tests.engines.faulty_network import TIME_OUT, FaultyNetwork, Moment, faulty_network
from tests.engines.flink_client import FlinkClient, eventually, insert, jobs_text, target
from tests.engines.lakehouse import Lakehouse, another_catalog, append, pairs
from tests.engines.session_cluster import SessionCluster
from tests.engines.test_flink_sink import checkpoints

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]

ROWS, RATE, WRITERS = 1_000_000, 2_500, 4
MERGED = -1_000_000
"""Ids from here on downwards are those of the MERGE; Flink's are positive, and DuckDB's are between."""


class Kill(Enum):
    TASK_MANAGER = auto()
    JOB_MANAGER = auto()
    UNACKNOWLEDGED = auto()
    """The TaskManager, after the catalog has ratified a commit and before Flink gets the answer."""
    CATALOG = auto()


KILLS = [Kill.TASK_MANAGER] * 5 + [Kill.JOB_MANAGER] * 3 + [Kill.UNACKNOWLEDGED] * 2 + [Kill.CATALOG] * 3


@dataclass
class OtherWriters:
    """Four DuckDB writers and a Spark MERGE, each in a thread, which write on whatever becomes of the catalog."""

    lake: Lakehouse
    table: TableDeclaration
    over: threading.Event = field(default_factory=threading.Event)
    appended: list[int] = field(default_factory=lambda: [0] * WRITERS)
    merges: int = 0
    failed: list[BaseException] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    opened: list[DuckDB] = field(default_factory=list)

    def start(self) -> None:
        self.threads = [threading.Thread(target=self._kept, args=(self._appending(each), 0.7)) for each in range(WRITERS)]
        self.threads.append(threading.Thread(target=self._kept, args=(self._merge, 2.0)))
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        for duckdb in self.opened:
            duckdb.close()

    def _kept(self, write: Callable[[], None], pause: float) -> None:
        """Write until it is over; a write that the catalog's end interrupts is repeated, and counts once."""
        try:
            while not self.over.wait(pause):
                while True:
                    try:
                        write()
                        break
                    except RatifyError:
                        time.sleep(0.5)
        except BaseException as error:
            self.failed.append(error)
            raise

    def _appending(self, writer: int) -> Callable[[], None]:
        duckdb = self.lake.another_duckdb(threads=1)
        self.opened.append(duckdb)

        def write() -> None:
            number = self.appended[writer]
            append(duckdb, self.table, f"SELECT {-1 - number}::BIGINT AS id, 'w{writer}' AS v", f"{writer}-{number}")
            self.appended[writer] += 1

        return write

    def _merge(self) -> None:
        """One new row, and another value in all that were merged before."""
        number = self.merges
        self.lake.run(
            f"MERGE INTO {self.lake.full(self.table)} AS target USING "
            f"(SELECT {MERGED} - id AS id, 'merge {number}' AS v FROM range({number + 1})) AS source "
            f"ON target.id = source.id AND target.id <= {MERGED} "
            "WHEN MATCHED THEN UPDATE SET v = source.v WHEN NOT MATCHED THEN INSERT *"
        )
        self.merges += 1

    def check(self) -> None:
        assert not self.failed
        [seen] = self.lake.run(
            f"SELECT count(*) AS n, count(DISTINCT v, id) AS once FROM {self.lake.full(self.table)} "
            f"WHERE id < 0 AND id > {MERGED}"
        )
        assert seen == {"n": sum(self.appended), "once": sum(self.appended)}
        merged = self.lake.run(f"SELECT id, v FROM {self.lake.full(self.table)} WHERE id <= {MERGED} ORDER BY id DESC")
        last = f"merge {self.merges - 1}"
        assert merged == [{"id": MERGED - number, "v": last} for number in range(self.merges)]


@dataclass
class ClusterJob:
    """The job, on a cluster whose commits go through a network that can lose them."""

    lake: Lakehouse
    table: TableDeclaration
    cluster: SessionCluster
    network: FaultyNetwork
    folder: Path

    @property
    def rest(self) -> FlinkRest:
        return FlinkRest(self.cluster.url)

    @property
    def state(self) -> JobState | None:
        return self.rest.job(self.table.table_name)

    @property
    def finished(self) -> bool:
        state = self.state
        return state is not None and state.state == "FINISHED"

    def submit(self) -> None:
        """Send the job to the cluster; it begins at the newest checkpoint, if there is one."""
        found = checkpoints(self.folder / "checkpoints")
        seen = UnityCatalog(host=self.network.url, token=another_catalog(self.lake.stack).bearer_token())
        settings = {
            "parallelism__default": "2",
            "execution__checkpointing__dir": self.folder.joinpath("checkpoints").as_uri(),
            "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
            "execution__checkpointing__interval": "1000 ms",
            "restart_strategy__fixed_delay__attempts": "1000",
            "restart_strategy__fixed_delay__delay": "500 ms",
            "execution__target": "remote",
            "rest__address": "127.0.0.1",
            "rest__port": str(self.cluster.rest),
            **({"execution__state_recovery__path": found[-1].as_uri()} if found else {}),
        }
        sql = jobs_text(target(seen), [insert(self.table, ROWS, ["seq", "'flink'"], rate=RATE)], **settings)
        client = FlinkClient.start(self.folder, self.cluster.jars_dir, sql, self.cluster.token)
        ended = client.wait(180)
        assert not ended.error, ended

    def next_checkpoint(self) -> None:
        """Wait until a checkpoint completes, or the job has finished."""
        before = set(checkpoints(self.folder / "checkpoints"))
        eventually(lambda: self.finished or set(checkpoints(self.folder / "checkpoints")) - before, 180)

    def kill(self, kill: Kill) -> None:
        """Kill what is to be killed, and bring it back."""
        match kill:
            case Kill.CATALOG:
                self._kill_catalog()
            case Kill.TASK_MANAGER:
                self.cluster.kill_task_manager()
                self.cluster.start_task_manager()
            case Kill.UNACKNOWLEDGED:
                self.network.spoil(Moment.AFTER, TIME_OUT)
                eventually(lambda: self.network.spoiled == 1, 120)
                self.cluster.kill_task_manager()
                self.cluster.start_task_manager()
            case Kill.JOB_MANAGER:
                self.cluster.kill_job_manager()
                self.cluster.start_job_manager()
                self.submit()

    def _kill_catalog(self) -> None:
        """Kill the run's catalog server with -9; its supervisor starts it again on the same port."""
        port = urlsplit(self.lake.stack.catalog.url).port
        listening = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.laddr and connection.laddr.port == port and connection.status == "LISTEN"
        ]
        assert listening[0]
        os.kill(listening[0], 9)

    def readable(self) -> None:
        """Every engine reads the table, and finds no row twice."""
        counted = "count(*) AS n, count(DISTINCT id) AS ids"
        by_spark, by_duckdb = {}, {}

        def read() -> bool:
            nonlocal by_spark, by_duckdb
            try:
                [by_spark] = self.lake.run(f"SELECT {counted} FROM {self.lake.full(self.table)} WHERE id > 0")
                with self.lake.duckdb.session() as session:
                    session.attach()
                    [by_duckdb] = session.records(f"SELECT {counted} FROM uc.bronze.{self.table.name} WHERE id > 0")
            except RatifyError:
                # The catalog may be on its way back.
                return False
            return True

        eventually(read, 120)
        assert by_spark["n"] == by_spark["ids"]
        assert by_duckdb["n"] == by_duckdb["ids"] >= by_spark["n"]


@pytest.fixture
def job(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> Iterator[ClusterJob]:
    table = pairs(writer=Engine.SPARK, keys=("id",))
    lake.spark.ensure_table(table)
    (folder := tmp_path / "cluster").mkdir()
    cluster = SessionCluster(folder, jars_dir, lake.catalog.bearer_token())
    with faulty_network(lake.stack.catalog.url) as network:
        try:
            cluster.start()
            yield ClusterJob(lake, table, cluster, network, tmp_path)
        finally:
            cluster.stop()


def test_counts_and_sums_are_exact(job: ClusterJob) -> None:
    seed = int(os.environ.get("RATIFY_SEED") or time.time())
    print(f"RATIFY_SEED={seed}")
    chance, lake = random.Random(seed), job.lake  # noqa: S311
    kills = chance.sample(KILLS, len(KILLS))
    others = OtherWriters(lake, job.table)
    others.start()
    try:
        job.submit()
        for kill in kills:
            job.next_checkpoint()
            # At once, while the committer is at work, or at any time of the next checkpoint.
            time.sleep(chance.choice([0.0, 0.05, 0.1, 0.2, chance.uniform(0, 2)]))
            assert not job.finished, f"the job ended before {kill}"
            print(f"{time.strftime('%X')} {kill.name}, version {lake.version(job.table)}", flush=True)
            job.kill(kill)
            job.readable()
        eventually(lambda: job.finished, 600)
        # The other engines' writes go on after Flink's last.
        before = list(others.appended), others.merges
        eventually(lambda: others.merges > before[1] and all(map(int.__gt__, others.appended, before[0])), 60)
    finally:
        others.stop()
    others.check()
    counted = "count(*) AS n, count(DISTINCT id) AS ids, sum(id) AS total"
    wanted = {"n": ROWS, "ids": ROWS, "total": ROWS * (ROWS + 1) // 2}
    assert lake.run(f"SELECT {counted} FROM {lake.full(job.table)} WHERE id > 0") == [wanted]
    with lake.duckdb.session() as session:
        session.attach()
        assert session.records(f"SELECT {counted} FROM uc.bronze.{job.table.name} WHERE id > 0") == [wanted]
    # No checkpoint twice: each of Flink's versions has a txn of its own.
    versions = [commit.version for commit in lake.spark.history(lake.full(job.table)) if commit.engine is Engine.FLINK]
    txns = [action["txn"] for version in versions for action in lake.commit(job.table, version) if "txn" in action]
    assert len(txns) == len(versions) == len({(txn["appId"], txn["version"]) for txn in txns})
