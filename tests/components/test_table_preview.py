"""What is personal in a table is known from its columns and from where its records have subjects, and is not previewed."""

import time
from dataclasses import replace
from typing import Any

import pytest

from ratify_lakehouse.components.table_asset import column_schema
from ratify_lakehouse.components.table_preview import preview_by_duckdb, preview_by_spark
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.sql.subject_match import Match
from tests.engines.lakehouse import Lakehouse

TABLE = TableDeclaration(
    "bronze",
    "clicks",
    (Column("at", "timestamp"), Column("note", "string", pii=True), Column("who", "string", subject="user")),
    "Clicks",
    Engine.SPARK,
    frozenset({"WRITE"}),
)


def test_what_is_personal() -> None:
    assert TABLE.personal == ("note", "who")
    sent = (Column("key", "binary"), Column("value", "binary"), Column("topic", "string"))
    records = replace(
        TABLE, columns=sent, subjects={"user": [Match("key", binary=True), Match("value", "user.id", binary=True)]}
    )
    assert records.personal == ("key", "value")
    assert [column.name for column in column_schema(records).columns if "pii" in column.tags] == ["key", "value"]


def test_a_table_with_nothing_else_has_an_empty_preview() -> None:
    table = replace(TABLE, columns=TABLE.columns[1:])
    nothing_is_read: Any = None
    for preview in (preview_by_spark(nothing_is_read, table), preview_by_duckdb(nothing_is_read, table)):
        assert (preview.records, preview.schema.columns) == ([], [])


@pytest.mark.stack
def test_timestamps_are_in_utc(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        columns = (Column("at", "timestamp"), Column("more", "array<timestamp>"))
        query = "SELECT TIMESTAMP '2026-07-01 12:00:00Z' AS at, array(at) AS more"
        (row,) = preview_by_spark(lake.spark, replace(TABLE, columns=columns), lake.spark.sql(query)).records
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row.data == {"at": "2026-07-01 12:00:00+00:00", "more": '["2026-07-01T12:00:00.000Z"]'}
