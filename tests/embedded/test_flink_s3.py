"""Flink on a table on S3, with vended credentials only, which it has renewed within a job."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.embedded.stack_state import StackState
from tests.embedded.catalog.s3_server import MotoS3
from tests.engines.flink_client import FlinkClient, insert, jobs_text, target
from tests.engines.lakehouse import another_catalog, pairs

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]

ROWS = 4_000


def test_a_job_outlives_its_credentials(
    stack_s3: StackState,
    spark_s3: SparkSession,
    s3: MotoS3,
    tmp_path: Path,
    jars_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, table = another_catalog(stack_s3), pairs(writer=Engine.SPARK)
    catalog.ensure_schemas((table.layer,))
    spark_s3.sql(table.ddl("ratify"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setattr(s3, "seconds", 4)
    s3.seen.clear()
    sql = jobs_text(target(catalog), [insert(table, ROWS, ["seq", "'x'"], rate=400)], table__dml_sync="true")
    [job] = FlinkClient.start(tmp_path, jars_dir, sql, catalog.bearer_token(), "--s3").wait(180).jobs
    assert (job.status, job.restarts, job.error) == ("FINISHED", 0, "")
    assert len({key_id for key_id, _, _, _ in s3.seen}) > 1
    assert {refusal for _, _, _, refusal in s3.seen} <= {"", "AccessDenied"}
    [seen] = spark_s3.sql(f"SELECT count(*), count(DISTINCT id) FROM {table.full_name('ratify')}").collect()
    assert tuple(seen) == (ROWS, ROWS)
