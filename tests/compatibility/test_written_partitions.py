"""Values of a partition column as Spark writes them: those that the engines read as others are those that are refused."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import AppendFailed
from ratify_lakehouse.sql.partition_values import HIVE_NULL, IN_SPARK, unusable
from ratify_lakehouse.table_layout import Layout
from tests.engines.lakehouse import Lakehouse, pairs

pytestmark = pytest.mark.stack

TEXTS = (
    *("", HIVE_NULL, HIVE_NULL.lower(), f" {HIVE_NULL}", " ", "a ", "a", "A", "ä", "😀", "e\u0301", "NULL", "null", "true"),
    *("1", "01", "2013-01-01", "infinity", ".", "..", "a.", "a/b", "a\\b", "a=b", "%", "%2F", "%25", "a+b", "~", "#?&;:*"),
    *("'", '"', "`", "$x", "{x}", "[x]", "^", "a\nb", "a\tb", "\r", "\x01", "\x7f", "é" * 126, "%" * 84, "x" * 253),
)
DATES = (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10))


def table_of(lake: Lakehouse) -> TableDeclaration:
    columns = (Column("id", "int"), Column("v", "string"), Column("d", "date"))
    table = pairs(Engine.SPARK, columns=columns, keys=("id",), layout=Layout(("v", "d")))
    lake.spark.ensure_table(table)
    return table


def frame(lake: Lakehouse, rows: Sequence[tuple[Any, ...]]) -> Any:
    return lake.spark.session.createDataFrame(list(rows), "id INT, v STRING, d DATE")


def read(lake: Lakehouse, table: TableDeclaration) -> list[dict[int, tuple[Any, ...]]]:
    """By Spark and by DuckDB."""
    with lake.another_duckdb().session() as session:
        by_duckdb = session.rows(f"SELECT id, v, d FROM uc.bronze.{table.name}")
    return [{row[0]: row[1:] for row in rows} for rows in (lake.rows(table), by_duckdb)]


def test_what_is_written_is_what_was_meant_or_is_refused(lake: Lakehouse) -> None:
    table, rows = table_of(lake), [(number, text, DATES[number % len(DATES)]) for number, text in enumerate(TEXTS)]
    meant = {row[0]: row[1:] for row in rows}
    # Without the guard.
    lake.spark.rows(lake.spark.sql(f"INSERT INTO {lake.full(table)} SELECT * FROM {{rows}}", rows=frame(lake, rows)))
    rule = unusable(IN_SPARK, "v", "string", "v")
    checked = lake.spark.query(f"SELECT id FROM {{rows}} WHERE {rule} IS NOT NULL", rows=frame(lake, rows))
    refused = {row["id"] for row in lake.spark.rows(checked)}
    for found in read(lake, table):
        assert {id_ for id_, values in meant.items() if found[id_] != values} == refused == {0, 1}
    usable = [row for row in rows if row[0] not in refused]
    written = lake.spark.merge_to_match(table, lambda: frame(lake, usable))
    assert written.rows == len(usable)
    assert all(found == {row[0]: row[1:] for row in usable} for found in read(lake, table))
    for text in ("", HIVE_NULL, "x" * 254):
        with pytest.raises(AppendFailed, match=rf"{table.name}, column v, the row with id = 99: .*Nothing was written"):
            lake.spark.merge_to_match(table, lambda text=text: frame(lake, [*usable[:1], (99, text, None)]))
    assert lake.version(table) == written.version
