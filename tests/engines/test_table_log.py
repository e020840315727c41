"""What is read of a table's log in this process is what Spark reads."""

from itertools import islice

import pytest

from ratify_lakehouse.delta.table_log import TableLog
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack


def test_commits_and_rows_are_those_that_spark_reads(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={"delta.checkpointInterval": "3"}))
    full_name = lake.full(table)
    append(lake.duckdb, table, "SELECT i, 'x' FROM range(10) r(i)", "a load")
    lake.run(f"INSERT INTO {full_name} VALUES (10, 'y'), (11, NULL)")
    lake.run(f"DELETE FROM {full_name} WHERE id IN (3, 10)")
    with lake.duckdb.session() as session:
        session.attach()
        session.con.execute(f"INSERT INTO uc.bronze.{table.name} VALUES (12, 'z')")
    lake.run(f"UPDATE {full_name} SET v = 'new' WHERE id < 2")
    log = TableLog.opened(lake.catalog, full_name)
    assert log is not None
    assert log.version == lake.version(table) == 5
    assert list(log.commits()) == lake.spark.history(full_name)
    assert list(islice(log.commits(), 2)) == lake.spark.history(full_name, 2)
    assert log.rows() == lake.spark.count(table) == 11


def test_where_only_spark_can_read_it(lake: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = pairs()
    location = tmp_path_factory.mktemp("external").as_uri()
    lake.run(f"CREATE TABLE {lake.full(table)} (id BIGINT, v STRING) USING DELTA LOCATION '{location}'")
    lake.run(f"INSERT INTO {lake.full(table)} VALUES (1, 'a')")
    assert TableLog.opened(lake.catalog, lake.full(table)) is None
    commits = list(lake.spark.recent_commits(lake.full(table), 5))
    assert commits == lake.spark.history(lake.full(table))
    assert commits[0].operation == "WRITE"
