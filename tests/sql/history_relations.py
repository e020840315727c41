"""Rows and versions of the model of a history as relations of SQL, and what a query for the versions gives."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from tests.components.history_model import HistoryModel, SourceRow

_KEYS = 150
_STORED = "CAST({} AS INT) AS a, CAST({} AS STRING) AS b, CAST({} AS INT) AS value, CAST({} AS INT) AS note"
_DATED = {True: ", timestamp_micros({}) AS changed", False: ""}


def literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def rows_sql(rows: Sequence[SourceRow], *, dated: bool) -> str:
    """The rows, as a relation."""
    made = [
        (*(row.key if isinstance(row.key, tuple) else ()), row.value, row.note, *([row.time] if dated else []))
        for row in rows
    ]
    values = [f"({', '.join(map(literal, row))})" for row in made]
    columns = "a, b, value, note" + (", micros" if dated else "")
    types = _STORED.format("a", "b", "value", "note") + _DATED[dated].format("micros")
    return f"(SELECT {types} FROM (VALUES {', '.join(values)}) AS given({columns}))"


def stored_sql(model: HistoryModel, *, dated: bool) -> str:
    """The versions of a model, as a relation."""
    made = [(*(key if isinstance(key, tuple) else ()), *rest) for key, *rest in model.rows]
    values = [f"({', '.join(map(literal, row))})" for row in made] or ["(NULL, NULL, NULL, NULL, 0, 0, 0)"]
    ends = "timestamp_micros(since) AS valid_from, timestamp_micros(until) AS valid_to, until IS NULL AS current"
    types = _STORED.format("a", "b", "value", "note") + _DATED[dated].format("dated")
    where = "" if made else " WHERE false"
    return f"(SELECT {types}, {ends} FROM (VALUES {', '.join(values)}) AS s(a, b, value, note, since, until, dated){where})"


def as_found(text: str, *, dated: bool) -> str:
    """The query for the versions of another query, with their times as numbers."""
    return (
        "SELECT a, b, value, note, unix_micros(valid_from) AS since, unix_micros(valid_to) AS until, "
        f"unix_micros({'changed' if dated else 'valid_from'}) AS dated, current FROM (\n{text}\n)"
    )


def expected_rows(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Rows of `as_found`, as the tests compare them with those of a model."""
    made = [tuple(row) for row in rows]
    assert all(current == (until is None) for *_, until, _, current in made)
    return sorted(str(((row[0], row[1]), *row[2:7])) for row in made)


def some_rows(chance: random.Random, pass_number: int, *, dated: bool) -> list[SourceRow]:
    """For most keys one row, for others none; where rows are dated, at times several of a key."""
    rows = list[SourceRow]()
    for number in range(_KEYS):
        key = (chance.choice((None, number)) if number == 0 else number, chance.choice((None, "x")) if number == 1 else "x")
        times = [None] if not dated else chance.sample(range(12), chance.choice((1, 1, 1, 2, 3)))
        if chance.random() < 0.25:
            continue
        rows += [SourceRow(key, chance.choice((None, 1, 2)), chance.choice((None, 5, 6)), time) for time in times]
    return rows or [SourceRow((0, "x"), 1, 1, pass_number if dated else None)]
