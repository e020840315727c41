"""The SQL of a table of history gives the versions that a model in plain Python gives."""

import random

import pytest
from pyspark.sql import SparkSession

from resources.sql.row_history import RowHistory, wanted_history
from tests.components.history_model import HistoryModel, SourceRow
from tests.resources.history_relations import as_found, expected_rows, rows_sql, some_rows, stored_sql

pytestmark = pytest.mark.stack


def found(spark: SparkSession, text: str, *, dated: bool) -> list[str]:
    return expected_rows(spark.sql(as_found(text, dated=dated)).collect())


@pytest.mark.parametrize(
    ("dated", "close", "passes"),
    [
        (True, True, 2),
        (False, True, 2),
        *(pytest.param(dated, close, 8, marks=pytest.mark.long) for dated in (True, False) for close in (True, False)),
    ],
)
def test_versions_are_those_of_the_model(spark: SparkSession, dated: bool, close: bool, passes: int) -> None:
    chance = random.Random(f"{dated}{close}")  # noqa: S311 rows, not keys
    followed = RowHistory(("a", "b"), "changed" if dated else "", ("note",), close)
    columns = ("a", "b", "value", "note", *(["changed"] if dated else []))
    model, given, at = HistoryModel(close), "", 0

    def wanted(at: int) -> list[str]:
        stored = stored_sql(model, dated=dated)
        return found(spark, wanted_history(followed, columns, stored, given, f"timestamp_micros({at})"), dated=dated)

    def expected() -> list[str]:
        return sorted(str((key, *rest)) for key, *rest in model.rows)

    for number in range(passes):
        rows, at = some_rows(chance, number, dated=dated), chance.randrange(12)
        given = rows_sql(rows, dated=dated)
        versions = wanted(at)
        model.pass_over(rows, at)
        assert versions == expected()
    # The same rows once more change nothing, whenever they are read.
    assert wanted(at + 7) == expected()


def test_a_row_that_is_there_but_not_read_leaves_its_version_open(spark: SparkSession) -> None:
    model = HistoryModel()
    model.pass_over([SourceRow((1, "x"), 1, 1), SourceRow((2, "x"), 2, 2)], 5)
    read, there = ([SourceRow((3, "x"), 3, 3)], [SourceRow((1, "x"), None, None), SourceRow((3, "x"), 3, 3)])
    text = wanted_history(
        RowHistory(("a", "b")),
        ("a", "b", "value", "note"),
        stored_sql(model, dated=False),
        rows_sql(read, dated=False),
        "timestamp_micros(9)",
        rows_sql(there, dated=False),
    )
    model.pass_over(read, 9, failing=[(1, "x")])
    assert found(spark, text, dated=False) == sorted(str((key, *rest)) for key, *rest in model.rows)


@pytest.mark.parametrize(
    ("changed", "value", "expected"),
    [
        (1, 1, [(1, 1, 10), (1, 20, None)]),
        # Corrected, without another time.
        (1, 3, [(3, 1, 10), (3, 20, None)]),
        # Changed before it was read again, but for the extract that it was missing in.
        (15, 2, [(1, 1, 10), (2, 15, None)]),
        (8, 2, [(1, 1, 8), (2, 8, 10), (2, 20, None)]),
        (25, 2, [(1, 1, 10), (1, 20, 25), (2, 25, None)]),
    ],
)
def test_a_row_that_came_back_has_its_newest_values(
    spark: SparkSession, changed: int, value: int, expected: list[tuple[int, int, int | None]]
) -> None:
    model = HistoryModel()
    for rows, at in (([SourceRow((1, "x"), 1, 1, 1)], 5), ([SourceRow((2, "x"), 1, 1, 1)], 10)):
        model.pass_over(rows, at)
    history = RowHistory(("a", "b"), "changed")
    columns = ("a", "b", "value", "note", "changed")
    for row, at in ((SourceRow((1, "x"), 1, 1, 1), 20), *[(SourceRow((1, "x"), value, 1, changed), 30)] * 2):
        stored, given = stored_sql(model, dated=True), rows_sql([row], dated=True)
        versions = found(spark, wanted_history(history, columns, stored, given, f"timestamp_micros({at})"), dated=True)
        model.pass_over([row], at)
        assert versions == sorted(str((key, *rest)) for key, *rest in model.rows)
    assert [(v.value, v.since, v.until) for v in model.versions[(1, "x")]] == expected


@pytest.mark.parametrize(("changed", "value"), [(1, 1), (8, 2)])
def test_a_row_that_is_there_again_is_current(spark: SparkSession, changed: int, value: int) -> None:
    """It was deleted at 10, and is there again at 20 as it was, or changed before that: its history has a gap."""
    stored = (
        "(SELECT 1 AS k, 1 AS value, timestamp_micros(1) AS changed, timestamp_micros(1) AS valid_from, "
        "timestamp_micros(10) AS valid_to, false AS current)"
    )
    rows = f"(SELECT 1 AS k, {value} AS value, timestamp_micros({changed}) AS changed)"
    history, columns = RowHistory(("k",), "changed"), ("k", "value", "changed")

    def versions(stored: str, at: int) -> list[tuple[int, int, int | None]]:
        text = wanted_history(history, columns, stored, rows, f"timestamp_micros({at})")
        ends = "unix_micros(valid_from) AS since, unix_micros(valid_to) AS until"
        found = spark.sql(f"SELECT value, {ends} FROM (\n{text}\n) ORDER BY since").collect()
        return [(row["value"], row["since"], row["until"]) for row in found]

    found = versions(stored, 20)
    assert found == ([(1, 1, 10)] if value == 1 else [(1, 1, 8), (2, 8, 10)]) + [(value, 20, None)]
    listed = ", ".join(f"({value}, {since}, {until or 'NULL'})" for value, since, until in found)
    again = (
        "(SELECT 1 AS k, value, timestamp_micros(since) AS changed, timestamp_micros(since) AS valid_from, "
        f"timestamp_micros(until) AS valid_to, until IS NULL AS current FROM VALUES {listed} AS s(value, since, until))"
    )
    assert versions(again, 30) == found


def test_days_date_rows_too(spark: SparkSession) -> None:
    """A row that is deleted on the day of its last change was valid on no day in its last form."""
    stored = (
        "(SELECT 1 AS k, DATE '2026-01-03' AS day, DATE '2026-01-03' AS valid_from, CAST(NULL AS DATE) AS valid_to, "
        "true AS current)"
    )
    rows = "(SELECT 2 AS k, DATE '2026-01-02' AS day)"
    text = wanted_history(RowHistory(("k",), "day"), ("k", "day"), stored, rows, "DATE '2026-01-03'")
    found = [tuple(map(str, row)) for row in spark.sql(f"{text} ORDER BY k").collect()]
    assert found == [
        ("1", "2026-01-03", "2026-01-03", "2026-01-03", "False"),
        ("2", "2026-01-02", "2026-01-02", "None", "True"),
    ]
