"""A Flink job that is killed again and again, between commit and acknowledgement too, beside other writers of its table.

The long form. `RATIFY_SEED` repeats a run.
"""

import os
import random
import threading
import time
from pathlib import Path

import pytest

from resources.declarations import Engine
from tests.resources.flink_client import FlinkClient, insert, jobs_text, target
from tests.resources.lakehouse import Lakehouse, append, pairs
from tests.resources.test_flink_sink import checkpoints

pytestmark = [pytest.mark.stack, pytest.mark.long]

ROWS, RATE, KILLS, WRITERS = 200_000, 5_000, 6, 2


def test_counts_and_sums_are_exact(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> None:
    seed = int(os.environ.get("RATIFY_SEED") or time.time())
    print(f"RATIFY_SEED={seed}")
    chance = random.Random(seed)  # noqa: S311
    table, over = pairs(writer=Engine.SPARK), threading.Event()
    lake.spark.ensure_table(table)
    folder, token, appended = tmp_path / "checkpoints", lake.catalog.bearer_token(), [0] * WRITERS
    settings = {
        "parallelism__default": "2",
        "execution__checkpointing__dir": folder.as_uri(),
        "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
        "execution__checkpointing__interval": "1000 ms",
        "table__dml_sync": "true",
    }

    def race(writer: int) -> None:
        duckdb = lake.another_duckdb()
        while not over.wait(0.2):
            number = appended[writer]
            append(duckdb, table, f"SELECT {-1 - number}::BIGINT AS id, 'w{writer}' AS v", f"{writer}-{number}")
            appended[writer] += 1
        duckdb.close()

    def start() -> FlinkClient:
        found = checkpoints(folder)
        more = {"execution__state_recovery__path": found[-1].as_uri()} if found else {}
        sql = jobs_text(target(lake.catalog), [insert(table, ROWS, ["seq", "'flink'"], rate=RATE)], **settings, **more)
        return FlinkClient.start(tmp_path, jars_dir, sql, token)

    racing = [threading.Thread(target=race, args=(writer,)) for writer in range(WRITERS)]
    for thread in racing:
        thread.start()
    try:
        client, kills = start(), 0
        while client.process.poll() is None and kills < KILLS:
            before, began = len(checkpoints(folder)), time.monotonic()
            while client.process.poll() is None and len(checkpoints(folder)) <= before and time.monotonic() < began + 60:
                time.sleep(0.01)
            # At once, while the committer is at work, or at any time of the next checkpoint.
            time.sleep(chance.choice([0.0, 0.05, 0.1, 0.2, chance.uniform(0, 2)]))
            if client.process.poll() is None:
                client.kill()
                kills += 1
                client = start()
        ended = client.wait(300)
    finally:
        over.set()
        for thread in racing:
            thread.join()
    [job] = ended.jobs
    assert (job.status, job.restarts) == ("FINISHED", 0), ended
    [seen] = lake.run(
        f"SELECT count_if(id > 0) AS n, count(DISTINCT if(id > 0, id, NULL)) AS ids, sum(if(id > 0, id, 0)) AS total, "
        f"count_if(id < 0) AS other FROM {lake.full(table)}"
    )
    assert seen == {"n": ROWS, "ids": ROWS, "total": ROWS * (ROWS + 1) // 2, "other": sum(appended)}
    with lake.duckdb.session() as session:
        assert session.count(table) == ROWS + sum(appended)
    # No checkpoint twice: each version has a txn of its own.
    versions = [commit.version for commit in lake.spark.history(lake.full(table)) if commit.engine is Engine.FLINK]
    txns = [action["txn"] for version in versions for action in lake.commit(table, version) if "txn" in action]
    assert len(txns) == len(versions) == len({(txn["appId"], txn["version"]) for txn in txns})
    assert kills > 0
