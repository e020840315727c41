"""The SQL of a table of history gives the versions that a model in plain Python gives."""

import random

import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from tests.components.history_model import HistoryModel, SourceRow
from tests.sql.history_relations import as_found, expected_rows, rows_sql, some_rows, stored_sql

pytestmark = pytest.mark.stack


def rows_of(model: HistoryModel) -> list[str]:
    return sorted(str((key, *rest)) for key, *rest in model.rows)


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

    for number in range(passes):
        rows, at = some_rows(chance, number, dated=dated), chance.randrange(12)
        given = rows_sql(rows, dated=dated)
        versions = wanted(at)
        model.pass_over(rows, at)
        assert versions == rows_of(model)
    # The same rows once more change nothing, whenever they are read.
    assert wanted(at + 7) == rows_of(model)


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
    assert found(spark, text, dated=False) == rows_of(model)


CAME_BACK: tuple[tuple[int, int, list[tuple[int, int, int | None]]], ...] = (
    (1, 1, [(1, 1, 10), (1, 20, None)]),
    # Corrected, without another time.
    (1, 3, [(3, 1, 10), (3, 20, None)]),
    # Changed before it was read again, but for the extract that it was missing in.
    (15, 2, [(1, 1, 10), (2, 15, None)]),
    (8, 2, [(1, 1, 8), (2, 8, 10), (2, 20, None)]),
    (25, 2, [(1, 1, 10), (1, 20, 25), (2, 25, None)]),
)


def test_a_row_that_came_back_has_its_newest_values(spark: SparkSession) -> None:
    """Each case is a row of a key of its own."""
    model = HistoryModel()
    keys = [(number, "x") for number in range(len(CAME_BACK))]
    first = [SourceRow(key, 1, 1, 1) for key in keys]
    for rows, at in ((first, 5), ([SourceRow((9, "x"), 1, 1, 1)], 10)):
        model.pass_over(rows, at)
    history = RowHistory(("a", "b"), "changed")
    columns = ("a", "b", "value", "note", "changed")
    then = [SourceRow(key, value, 1, changed) for key, (changed, value, _) in zip(keys, CAME_BACK, strict=True)]
    for rows, at in ((first, 20), (then, 30), (then, 30)):
        stored, given = stored_sql(model, dated=True), rows_sql(rows, dated=True)
        versions = found(spark, wanted_history(history, columns, stored, given, f"timestamp_micros({at})"), dated=True)
        model.pass_over(rows, at)
        assert versions == rows_of(model)
    of_keys = [[(v.value, v.since, v.until) for v in model.versions[key]] for key in keys]
    assert of_keys == [versions for *_, versions in CAME_BACK]


THERE_AGAIN: tuple[tuple[int, int, list[tuple[int, int, int | None]]], ...] = (
    (1, 1, [(1, 1, 10), (1, 20, None)]),
    (8, 2, [(1, 1, 8), (2, 8, 10), (2, 20, None)]),
)


def test_a_row_that_is_there_again_is_current(spark: SparkSession) -> None:
    """It was deleted at 10, and is there again at 20 as it was, or changed before that: its history has a gap."""
    listed = ", ".join(f"({k}, 1, 1, 10)" for k in range(len(THERE_AGAIN)))
    given = ", ".join(f"({k}, {value}, {changed})" for k, (changed, value, _) in enumerate(THERE_AGAIN))
    rows = f"(SELECT k, value, timestamp_micros(at) AS changed FROM VALUES {given} AS r(k, value, at))"
    history, columns = RowHistory(("k",), "changed"), ("k", "value", "changed")
    then = [(k, *version) for k, (*_, versions) in enumerate(THERE_AGAIN) for version in versions]
    again = ", ".join(f"({k}, {value}, {since}, {until or 'NULL'})" for k, value, since, until in then)
    each = list[str]()
    for values, at in ((listed, 20), (again, 30)):
        stored = (
            "(SELECT k, value, timestamp_micros(since) AS changed, timestamp_micros(since) AS valid_from, "
            "timestamp_micros(until) AS valid_to, until IS NULL AS current "
            f"FROM VALUES {values} AS s(k, value, since, until))"
        )
        text = wanted_history(history, columns, stored, rows, f"timestamp_micros({at})")
        ends = "unix_micros(valid_from) AS since, unix_micros(valid_to) AS until"
        each.append(f"SELECT {at} AS at, k, value, {ends} FROM (\n{text}\n)")
    found = [tuple(row) for row in spark.sql(f"{' UNION ALL '.join(each)} ORDER BY at, k, since").collect()]
    assert found == [(at, *version) for at in (20, 30) for version in then]


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
