"""What this project's sink for Flink refuses when a query is planned, and when a job is restored."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.erasure_fence import fencing
from tests.engines.flink_client import FlinkClient, eventually, insert, jobs_text, target
from tests.engines.lakehouse import Lakehouse, pairs
from tests.engines.test_flink_sink import TEXT, checkpoints

pytestmark = [pytest.mark.stack, pytest.mark.long]


def test_a_query_that_updates_rows_is_refused_with_the_reason(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> None:
    table = pairs(writer=Engine.SPARK)
    lake.spark.ensure_table(table)
    sql = jobs_text(target(lake.catalog), [insert(table, 10, ["seq", TEXT])])
    before, _, _ = sql.partition("INSERT INTO")
    grouped = f"INSERT INTO `ratify`.`bronze`.`{table.name}` SELECT COUNT(*), CAST(MOD(seq, 2) AS STRING) FROM "
    sql = f"{before}{grouped} default_catalog.default_database.generated_1 GROUP BY MOD(seq, 2);"
    run = FlinkClient.start(tmp_path, jars_dir, sql, lake.catalog.bearer_token()).wait()
    assert run.jobs == ()
    assert f"{lake.full(table)}: the query updates or deletes rows" in run.error
    assert lake.version(table) == 0


def created_again(lake: Lakehouse, table: TableDeclaration) -> None:
    lake.run(f"DROP TABLE {lake.full(table)}")
    lake.spark.ensure_table(table)


def fenced(lake: Lakehouse, table: TableDeclaration) -> None:
    lake.duckdb.log(lake.full(table)).commit(fencing, partitioned=True)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            created_again,
            " changed after rows for it were written, which a checkpoint holds: it was dropped and created again",
        ),
        (fenced, ": a data subject was erased after the job had begun"),
    ],
    ids=["created again", "fenced"],
)
def test_pending_files_are_refused(
    lake: Lakehouse,
    tmp_path: Path,
    jars_dir: Path,
    change: Callable[[Lakehouse, TableDeclaration], None],
    refusal: str,
) -> None:
    table, token = pairs(writer=Engine.SPARK), lake.catalog.bearer_token()
    lake.spark.ensure_table(table)
    settings = {
        "execution__checkpointing__dir": tmp_path.joinpath("checkpoints").as_uri(),
        "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
        # The generator has its rows at the begin of each second: every checkpoint has some.
        "execution__checkpointing__interval": "1500 ms",
        "table__dml_sync": "true",
    }
    inserts = [insert(table, 20_000, ["seq", TEXT])]
    client = FlinkClient.start(tmp_path, jars_dir, jobs_text(target(lake.catalog), inserts, **settings), token)
    eventually(lambda: client.process.poll() is not None or len(checkpoints(tmp_path / "checkpoints")) > 0)
    time.sleep(0.7)
    client.kill()
    change(lake, table)
    version = lake.version(table)
    settings["execution__state_recovery__path"] = checkpoints(tmp_path / "checkpoints")[-1].as_uri()
    again = jobs_text(target(lake.catalog), inserts, **settings)
    [job] = FlinkClient.start(tmp_path, jars_dir, again, token).wait().jobs
    assert (job.status, job.restarts) == ("FAILED", 0)
    assert f"{lake.full(table)}{refusal}" in job.error
    assert lake.version(table) == version
