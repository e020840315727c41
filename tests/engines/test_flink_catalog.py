"""Flink's catalog over Unity Catalog: what it lists and describes, an INSERT by declared columns, and what it refuses."""

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_process import FlinkCommand, running
from ratify_lakehouse.engines.flink.flink_sql import flink_type
from ratify_lakehouse.errors import FlinkFailed
from tests.engines.lakehouse import Lakehouse, pairs
from tests.engines.test_flink_sink import ROW, TYPES, VALUES

pytestmark = [pytest.mark.stack, pytest.mark.server]

CREATION, NO_CREATION = "CREATE TABLE bronze.made_by_flink (a INT)", "neither creates nor alters nor drops"


def catalog(lake: Lakehouse, *statements: str) -> str:
    options = f"'type' = 'ratify', 'endpoint' = '{lake.catalog.connection.host}/', 'default-database' = 'bronze'"
    return ";\n".join(
        (
            "SET 'table.dml-sync' = 'true'",
            "SET 'table.local-time-zone' = 'UTC'",
            f"CREATE CATALOG ratify WITH ({options})",
            "USE CATALOG ratify",
            *statements,
            "",
        )
    )


def test_tables_are_listed_described_and_written_by_their_declared_columns_and_not_created(lake: Lakehouse) -> None:
    table = pairs(columns=TYPES, writer=Engine.SPARK)
    lake.create(table)
    columns = ", ".join(f"`{column.name}`" for column in TYPES[1:])
    values = ", ".join(
        f"CAST({value} AS {flink_type(column.type)})" for column, value in zip(TYPES[1:], VALUES, strict=True)
    )
    insert = f"INSERT INTO {table.name} (id, {columns}) SELECT seq, {values} FROM (VALUES (1)) AS t (seq)"
    looks = "SHOW DATABASES", "SHOW TABLES IN bronze", f"DESCRIBE bronze.{table.name}"
    sql = catalog(lake, *looks, insert, CREATION)
    with running(FlinkCommand([], sql, Flink(catalog=lake.catalog).credentials())) as process:
        assert process.wait(180)
        with pytest.raises(FlinkFailed, match=NO_CREATION):
            process.finished()
        output = process.output
    assert "bronze |" in output
    assert f"{table.name} |" in output
    described = {cells[1].strip(): cells[2].strip() for line in output.splitlines() if len(cells := line.split("|")) > 6}
    assert described["exact"] == "DECIMAL(38, 9)"
    assert described["at"] == "TIMESTAMP_LTZ(6)"
    assert described["one"] == "ROW<`a` INT, `b` ARRAY<DATE>>"
    assert [each.asDict(recursive=True) for each in lake.spark.table(table).collect()] == [ROW]
    assert next(lake.spark.recent_commits(lake.full(table), 1)).engine is Engine.FLINK


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (CREATION, NO_CREATION),
        ("DROP TABLE bronze.{table}", NO_CREATION),
        ("INSERT INTO bronze.no_such_table SELECT 1", "no_such_table"),
        ("SELECT * FROM bronze.{table}", "can only be used as a sink"),
    ],
)
def test_what_it_cannot_do_is_an_error_that_says_so(lake: Lakehouse, statement: str, reason: str) -> None:
    table = pairs(writer=Engine.SPARK)
    lake.create(table)
    with pytest.raises(FlinkFailed, match=reason.format(table=table.name)):
        Flink(catalog=lake.catalog).execute(catalog(lake, statement.format(table=table.name)))
    assert lake.version(table) == 0
