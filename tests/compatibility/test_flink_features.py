"""This project's sink for Flink and each feature of a table: it writes rows that every engine reads, or refuses clearly."""

from pathlib import Path

import pytest

from ratify_lakehouse.declarations import Engine
from tests.compatibility.flink_features import REFUSED
from tests.compatibility.matrix_features import FEATURES
from tests.engines.flink_client import FlinkClient, by_table, insert, jobs_text, target
from tests.engines.lakehouse import Lakehouse, pairs

pytestmark = [pytest.mark.stack, pytest.mark.long]

DEFAULT = "id BIGINT, v STRING"


def test_each_feature_is_written_or_refused(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> None:
    tables = {case.name: pairs(writer=Engine.SPARK) for case in FEATURES if case.expected}
    lake.catalog.ensure_schemas(("bronze",))
    for case in FEATURES:
        if case.name in tables:
            full = lake.full(tables[case.name])
            properties = {"delta.columnMapping.mode": "none", **case.properties}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            lake.run(f"CREATE TABLE {full} ({case.columns}) USING DELTA {case.clause} TBLPROPERTIES ({listed})")
            lake.run(f"INSERT INTO {full} (id, v) VALUES (1, 'spark'), (2, 'spark')")
            for statement in case.then:
                lake.run(statement.format(t=full))
    sql = jobs_text(target(lake.catalog), [insert(table, 5, ["100 + seq", "'flink'"]) for table in tables.values()])
    run = FlinkClient.start(tmp_path, jars_dir, sql, lake.catalog.bearer_token()).wait(400)
    jobs, wrong = by_table(run), dict[str, str]()
    for name, table in tables.items():
        job = jobs[table.name]
        if name in REFUSED:
            if (job.status, job.restarts) != ("FAILED", 0) or REFUSED[name] not in job.error:
                wrong[name] = f"{job.status}, {job.restarts}: {job.error}"
            continue
        where = "WHERE v = 'flink'"
        [seen] = lake.run(f"SELECT count(*) AS n, sum(id) AS total FROM {lake.full(table)} {where}")
        with lake.duckdb.session() as session:
            session.attach()
            by_duckdb = session.records(f"SELECT count(*) AS n, sum(id) AS total FROM uc.bronze.{table.name} {where}")
        if seen != {"n": 5, "total": 515} or [seen] != by_duckdb:
            wrong[name] = f"{seen}, {by_duckdb}; {job.status}, {job.restarts}: {job.error}"
    assert wrong == {}
