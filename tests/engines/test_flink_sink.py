"""This project's sink for Flink, for real: its cluster, the catalog, and the engines that read what it wrote.

The jobs of one kind share a JVM, whose start takes longer than they do.
"""

import datetime as dt
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.flink.flink_run import FlinkJob
from ratify_lakehouse.engines.flink.flink_sql import flink_type
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.partition_values import HIVE_NULL
from ratify_lakehouse.table_layout import Layout
from tests.compatibility.test_written_partitions import TEXTS
from tests.embedded.catalog.harness import READ, WRITE, ClientPrincipal, client_of
from tests.engines.flink_client import FlinkClient, by_table, eventually, insert, jobs_text, target, waiting_for_the_last
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]

TEXT = "CONCAT('v', CAST(seq AS STRING))"


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints below a folder, the newest last."""
    return sorted((path.parent for path in folder.glob("*/chk-*/_metadata")), key=lambda path: path.stat().st_mtime)


# Killed, and beside another writer.


def test_a_killed_job_goes_on_where_it_was_beside_another_writer(lake: Lakehouse, tmp_path: Path, jars_dir: Path) -> None:
    table, rows = pairs(writer=Engine.SPARK), 8_000
    lake.spark.ensure_table(table)
    token, over, appended = lake.catalog.bearer_token(), threading.Event(), list[int]()
    settings = {
        "parallelism__default": "2",
        "execution__checkpointing__dir": tmp_path.joinpath("checkpoints").as_uri(),
        "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
        "table__dml_sync": "true",
    }

    def race() -> None:
        while not over.wait(0.3):
            append(lake.duckdb, table, f"SELECT {-1 - len(appended)}::BIGINT AS id, 'duckdb' AS v", f"load-{len(appended)}")
            appended.append(1)

    def run(**more: str) -> FlinkClient:
        sql = jobs_text(target(lake.catalog), [insert(table, rows, ["seq", TEXT], rate=2000)], **settings, **more)
        return FlinkClient.start(tmp_path, jars_dir, sql, token)

    racing = threading.Thread(target=race)
    racing.start()
    try:
        first = run()
        eventually(lambda: first.process.poll() is not None or len(checkpoints(tmp_path / "checkpoints")) > 0)
        time.sleep(0.7)
        first.kill()
        *_, newest = checkpoints(tmp_path / "checkpoints")
        ended = run(execution__state_recovery__path=newest.as_uri()).wait()
    finally:
        over.set()
        racing.join()
    assert {commit.engine for commit in lake.spark.history(lake.full(table))} == {Engine.SPARK, Engine.DUCKDB, Engine.FLINK}
    [job] = ended.jobs
    assert (job.status, job.restarts, job.error) == ("FINISHED", 0, ""), ended
    assert appended
    [seen] = lake.run(
        "SELECT count_if(id > 0) AS n, count(DISTINCT id) - count_if(id < 0) AS ids, sum(if(id > 0, id, 0)) AS total, "
        f"count_if(id < 0) AS other, min(v = concat('v', id) OR id < 0) AS right FROM {lake.full(table)}"
    )
    assert seen == {"n": rows, "ids": rows, "total": rows * (rows + 1) // 2, "other": len(appended), "right": True}
    with lake.duckdb.session() as session:
        assert session.count(table) == rows + len(appended)


# What it writes, and what ends a job: all of these jobs run in one JVM.

TYPES = (
    Column("id", "bigint"),
    Column("truth", "boolean"),
    Column("tiny", "tinyint"),
    Column("small", "smallint"),
    Column("whole", "int"),
    Column("real4", "float"),
    Column("real8", "double"),
    Column("text", "string"),
    Column("bytes", "binary"),
    Column("day", "date"),
    Column("at", "timestamp"),
    Column("exact", "decimal(38,9)"),
    Column("short_exact", "decimal(5,2)"),
    Column("list", "array<string>"),
    Column("pairs", "map<string,int>"),
    Column("one", "struct<a:int,b:array<date>>"),
    Column("deep", "array<struct<x:int,y:map<string,struct<z:timestamp>>>>"),
)
VALUES = (
    "MOD(seq, 2) = 0",
    "-128",
    "-32768",
    "2147483647",
    "0.25",
    "-1E300",
    "'é 😀'",
    "x'00ff'",
    "DATE '1582-10-04'",
    "TO_TIMESTAMP_LTZ(-1, 3)",
    "'12345678901234567890123456789.123456789'",
    "1.25",
    "ARRAY['x', CAST(NULL AS STRING)]",
    "MAP['k', 1, 'l', CAST(NULL AS INT)]",
    "ROW(CAST(NULL AS INT), ARRAY[DATE '9999-12-31'])",
    "ARRAY[ROW(7, MAP['k', ROW(TO_TIMESTAMP_LTZ(1, 3))])]",
)
# As PySpark has it, in UTC.
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
# In a partition column, without letters that the client takes out of a text of SQL.
# A folder's name has each `%` as `%2525`.
USABLE = [*(text for text in TEXTS if text not in ("", HIVE_NULL, "%" * 84) and text.isprintable()), "%" * 50]
UNUSABLE = {
    "''": "an empty text, which is NULL in a partition column",
    literal(HIVE_NULL): f"{HIVE_NULL}, which is NULL in a partition column",
    "REPEAT('é', 127)": "a text of 127 characters, for which the name of a folder, of 255 bytes at most, has no room",
    "REPEAT('%', 51)": "a text of 51 characters, for which the name of a folder, of 255 bytes at most, has no room",
}
ROW = {
    "id": 1,
    "truth": False,
    "tiny": -128,
    "small": -32768,
    "whole": 2147483647,
    "real4": 0.25,
    "real8": -1e300,
    "text": "é 😀",
    "bytes": b"\x00\xff",
    "day": dt.date(1582, 10, 4),
    "at": EPOCH - dt.timedelta(milliseconds=1),
    "exact": Decimal("12345678901234567890123456789.123456789"),
    "short_exact": Decimal("1.25"),
    "list": ["x", None],
    "pairs": {"k": 1, "l": None},
    "one": {"a": None, "b": [dt.date(9999, 12, 31)]},
    "deep": [{"x": 7, "y": {"k": {"z": EPOCH + dt.timedelta(milliseconds=1)}}}],
}


def or_null(column: Column, value: str) -> str:
    """The value in rows of an odd number, else NULL; Flink's CASE takes no rows."""
    type_ = flink_type(column.type)
    cast = f"CAST({value} AS {type_})"
    if "ROW" in type_:
        return f"ARRAY[{cast}][IF(MOD(seq, 2) = 1, 1, 2)]"
    return f"CASE WHEN MOD(seq, 2) = 1 THEN {cast} END"


@dataclass
class Jobs:
    """Tables, and what became of the jobs into them."""

    types: TableDeclaration
    parts: TableDeclaration
    required: TableDeclaration
    forbidden: TableDeclaration
    mistyped: TableDeclaration
    altered: TableDeclaration
    texts: TableDeclaration
    unusable: Sequence[TableDeclaration]
    ended: dict[str, FlinkJob]
    output: str
    altered_rows: list[tuple[Any, ...]]
    secrets: tuple[str, ...]

    def of(self, table: TableDeclaration) -> FlinkJob:
        return self.ended[table.name]

    def error(self, table: TableDeclaration) -> str:
        """The error of a job that failed and did not restart."""
        job = self.of(table)
        assert (job.status, job.restarts) == ("FAILED", 0), job
        return job.error


@pytest.fixture(scope="module")
def jobs(engines: Lakehouse, tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Jobs:
    lake, folder = engines, tmp_path_factory.mktemp("flink")
    types = pairs(writer=Engine.SPARK, columns=TYPES)
    parts = pairs(writer=Engine.SPARK, columns=(Column("id", "bigint"), Column("v", "string"), Column("p", "string")))
    required = pairs(writer=Engine.SPARK, columns=(Column("id", "bigint"), Column("v", "string", nullable=False)))
    forbidden, mistyped, altered = (pairs(writer=Engine.SPARK) for _ in range(3))
    for table in (types, required, forbidden, altered):
        lake.spark.ensure_table(table)
    properties = "TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
    lake.run(f"CREATE TABLE {lake.full(parts)} (id BIGINT, v STRING, p STRING) USING DELTA PARTITIONED BY (p) {properties}")
    lake.run(f"CREATE TABLE {lake.full(mistyped)} (id INT, v STRING) USING DELTA {properties}")
    with client_of(lake.stack.catalog.url, lake.catalog.bearer_token()) as admin:
        writer, reader = ClientPrincipal.create(admin, *WRITE), ClientPrincipal.create(admin, *READ)
        secret, read_token = writer.secret(), reader.token()
    files = {"writer": f"client-id={writer.client_id}\nclient-secret={secret}\n", "reader": f"token={read_token}\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    options = {
        parts.name: {"credentials-file": str(folder / "writer"), "open-partitions": "8", "file-size": "2 kb"},
        forbidden.name: {"credentials-file": str(folder / "reader")},
    }
    columns = [or_null(column, value) for column, value in zip(TYPES[1:], VALUES, strict=True)]
    part = "CASE WHEN seq >= 80 THEN CONCAT('a/b %=', CAST(seq / 40 AS STRING)) END"
    by_v = Layout(("v",))
    texts, *unusable = (pairs(writer=Engine.SPARK, layout=by_v) for _ in range(1 + len(UNUSABLE)))
    for table in (texts, *unusable):
        lake.create(table)
    whens = " ".join(f"WHEN {number} THEN {literal(text)}" for number, text in enumerate(USABLE, 1))
    inserts = [
        insert(types, 2, ["seq", *columns]),
        insert(parts, 1999, ["seq", TEXT, part], rate=4000),
        insert(required, 1000, ["seq", "CASE WHEN seq < 900 THEN 'v' END"]),
        insert(forbidden, 10, ["seq", TEXT]),
        insert(mistyped, 10, ["seq", TEXT]),
        insert(texts, len(USABLE), ["seq", f"CASE seq {whens} END"]),
        *(
            insert(table, 10, ["seq", f"CASE WHEN seq < 9 THEN 'v' ELSE {sql} END"])
            for table, sql in zip(unusable, UNUSABLE, strict=True)
        ),
        insert(altered, 100_000, ["seq", TEXT], rate=100),
    ]
    sql = waiting_for_the_last(jobs_text(target(lake.catalog, options), inserts))
    client = FlinkClient.start(folder, jars_dir, sql, lake.catalog.bearer_token())
    try:
        eventually(lambda: client.process.poll() is not None or lake.version(altered) >= 1)
        lake.run(f"ALTER TABLE {lake.full(altered)} ADD COLUMN added INT")
        before = lake.version(altered)
        eventually(lambda: client.process.poll() is not None or lake.version(altered) >= before + 2)
        seen = lake.rows(altered)
        assert client.process.poll() is None, client.output()
        lake.run(f"DROP TABLE {lake.full(altered)}")
        ended = by_table(client.wait())
    finally:
        client.stop()
    tables = (types, parts, required, forbidden, mistyped, altered, texts, unusable)
    return Jobs(*tables, ended, client.output(), seen, (secret, read_token))


def test_every_type_comes_back(lake: Lakehouse, jobs: Jobs) -> None:
    assert jobs.of(jobs.types).status == "FINISHED", jobs.of(jobs.types)
    rows = lake.run(f"SELECT * FROM {lake.full(jobs.types)} ORDER BY id")
    assert rows == [ROW, dict.fromkeys(ROW, None) | {"id": 2}]
    with lake.duckdb.session() as session:
        [first, second] = session.records(f"SELECT * FROM uc.bronze.{jobs.types.name} ORDER BY id")
    at = first.pop("at")
    assert at == ROW["at"].replace(tzinfo=dt.UTC)
    assert first.pop("deep")[0]["x"] == 7
    assert first == {name: value for name, value in ROW.items() if name not in {"at", "deep"}}
    assert second == dict.fromkeys(ROW, None) | {"id": 2}


def test_partitions_beyond_the_open_ones_by_an_oauth_client(lake: Lakehouse, jobs: Jobs) -> None:
    assert jobs.of(jobs.parts).status == "FINISHED", jobs.of(jobs.parts)
    name = lake.full(jobs.parts)
    counts = "count(*) AS n, sum(id) AS total, count(DISTINCT p) AS parts, count_if(p IS NULL) AS none"
    [seen] = lake.run(f"SELECT {counts} FROM {name}")
    assert seen == {"n": 1999, "total": 1999 * 2000 // 2, "parts": 48, "none": 79}
    assert lake.run(f"SELECT count(*) AS n FROM {name} WHERE p = 'a/b %=7'") == [{"n": 40}]
    with lake.duckdb.session() as session:
        assert session.count(jobs.parts) == 1999


def test_texts_come_back_from_partition_columns(lake: Lakehouse, jobs: Jobs) -> None:
    assert jobs.of(jobs.texts).status == "FINISHED", jobs.of(jobs.texts)
    meant = list(enumerate(USABLE, 1))
    assert lake.rows(jobs.texts) == meant
    assert lake.stored(jobs.texts) == meant


def test_a_value_that_no_partition_can_have_ends_the_job_and_is_not_null(lake: Lakehouse, jobs: Jobs) -> None:
    for table, reason in zip(jobs.unusable, UNUSABLE.values(), strict=True):
        assert f"{lake.full(table)}, column v: {reason}" in jobs.error(table)
        assert lake.stored(table) == []


def test_null_in_a_required_column_ends_the_job_and_commits_no_such_row(lake: Lakehouse, jobs: Jobs) -> None:
    assert f"{lake.full(jobs.required)}: the column v is NOT NULL, and a row has NULL in it." in jobs.error(jobs.required)
    assert lake.run(f"SELECT count_if(id >= 900 OR v IS NULL) AS n FROM {lake.full(jobs.required)}") == [{"n": 0}]


def test_a_principal_without_modify_ends_the_job(lake: Lakehouse, jobs: Jobs) -> None:
    assert f"The catalog does not permit writing {lake.full(jobs.forbidden)} (403)" in jobs.error(jobs.forbidden)
    assert lake.version(jobs.forbidden) == 0


def test_other_types_than_the_table_s_end_the_job(lake: Lakehouse, jobs: Jobs) -> None:
    assert f"{lake.full(jobs.mistyped)}: the column id is integer, and the rows have BIGINT" in jobs.error(jobs.mistyped)


def test_a_job_goes_on_after_a_new_column_and_ends_when_the_table_is_dropped(lake: Lakehouse, jobs: Jobs) -> None:
    assert [row[0] for row in jobs.altered_rows] == list(range(1, len(jobs.altered_rows) + 1))
    assert {row[2] for row in jobs.altered_rows} == {None}
    assert f"The catalog has no table {lake.full(jobs.altered)}; was it dropped? (404)" in jobs.error(jobs.altered)


def test_secrets_are_in_no_output(jobs: Jobs) -> None:
    assert [secret for secret in jobs.secrets if secret in jobs.output] == []
