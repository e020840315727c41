"""Spark and DuckDB on storage on S3, with vended credentials only: moto's S3 refuses what AWS would refuse."""

import time
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ratify_lakehouse.delta import table_clean
from ratify_lakehouse.delta.lost_versions import newest_lost_version
from ratify_lakehouse.delta.managed_creation import create_table
from ratify_lakehouse.delta.table_clean import clean
from ratify_lakehouse.embedded.stack_state import StackState
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import AlreadyLoaded
from tests.embedded.catalog.s3_server import BUCKET, MotoS3
from tests.engines.lakehouse import another_catalog, append, pairs

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]
TABLE = "USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')"


def test_the_life_of_a_table_on_s3(spark_s3: SparkSession, s3: MotoS3) -> None:
    spark_s3.sql(f"CREATE TABLE s.t (id BIGINT, v STRING) {TABLE}")
    spark_s3.sql("INSERT INTO s.t VALUES (1, 'a'), (2, 'b')")
    spark_s3.sql(f"CREATE TABLE s.u {TABLE} AS SELECT id, upper(v) v FROM s.t")
    rows = spark_s3.sql("SELECT t.id, t.v, u.v FROM s.t JOIN s.u USING (id) ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "a", "A"), (2, "b", "B")]
    roots = {"/".join(key.split("/")[:6]) for key in s3.objects("lake/__unitystorage/catalogs/")}
    assert len(roots) == 2
    # S3A asks whether a new directory's parent is a file, and goes on when it may not know.
    parents = {f"{BUCKET}/{root.rpartition('/')[0]}/" for root in roots}
    refused = {(action, what) for _, action, what, refusal in s3.seen if refusal}
    assert refused <= {("s3:ListBucket", parent) for parent in parents}
    for name in ("t", "u"):
        spark_s3.sql(f"DROP TABLE s.{name}")
    assert s3.objects() == []


@pytest.mark.parametrize("created_by", ["Spark", "the catalog's API"])
def test_duckdb_appends(
    stack_s3: StackState,
    spark_s3: SparkSession,
    s3: MotoS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    created_by: str,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    catalog = another_catalog(stack_s3)
    # Two spools: the second writer knows the first one's commits from the catalog only.
    duckdb, far = DuckDB(catalog=catalog), DuckDB(catalog=catalog)
    table = pairs(properties={"delta.checkpointInterval": "3"})
    catalog.ensure_schemas((table.layer,))
    if created_by == "Spark":
        spark_s3.sql(table.ddl("ratify"))
    else:
        assert create_table(catalog, table)
    versions = [append(duckdb, table, f"SELECT {at}, 'é'", f"load {at}").version for at in range(4)]
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "far"))
    versions.append(append(far, table, "SELECT 4, NULL", "load 4").version)
    assert versions == [1, 2, 3, 4, 5]
    with pytest.raises(AlreadyLoaded):
        append(far, table, "SELECT 1, 'é'", "load 1")
    assert [row["id"] for row in spark_s3.table(table.full_name("ratify")).sort("id").collect()] == [0, 1, 2, 3, 4]
    log = far.log(table.full_name("ratify"))
    assert newest_lost_version(log, -1) == -1
    log.storage.write(f"_delta_log/_staged_commits/{3:020d}.{uuid4()}.json", b"{}")
    assert [newest_lost_version(log, after) for after in (-1, 2, 3)] == [3, 3, -1]
    log.storage.write("left.parquet", b"PAR1")
    # Every file is old.
    for name in ("_WEEK_S", "_SHORTEST_S"):
        monkeypatch.setattr(table_clean, name, -1)
    removed = clean(catalog, log)
    assert [file.path for file in removed if file.kind != "staged commit"] == ["left.parquet"]
    assert len(removed) == 6, "of five versions all but the last, which the catalog lists, and the lost one"
    assert clean(catalog, log) == []
    assert [row["id"] for row in spark_s3.table(table.full_name("ratify")).sort("id").collect()] == [0, 1, 2, 3, 4]
    assert [asked for asked in s3.seen if asked[3] and "/_delta_log" in asked[2]] == []


def test_credentials_are_renewed_within_one_job(spark_s3: SparkSession, s3: MotoS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "seconds", 8)
    spark_s3.conf.set("fs.unitycatalog.renewal.leadTimeMillis", "2000")
    spark_s3.sql(f"CREATE TABLE s.slow (id BIGINT, slept STRING) {TABLE}")
    sleep = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 12000000000L)"
    s3.seen.clear()
    begin = time.time()
    spark_s3.sql(f"INSERT INTO s.slow SELECT id, {sleep} FROM range(0, 1, 1, 1)")
    assert time.time() - begin > 12
    assert len({key_id for key_id, _, _, _ in s3.seen}) > 1
    assert spark_s3.table("s.slow").count() == 1
    assert [asked for asked in s3.seen if asked[3]] == []


def test_spark_has_no_keys_of_its_own(spark_s3: SparkSession, s3: MotoS3) -> None:
    s3.put("outside/a.csv")
    with pytest.raises(PySparkException, match=r"NoAuthWithAWSException|No AWS Credentials"):
        spark_s3.read.text(f"s3a://{BUCKET}/outside/a.csv").collect()
