"""The versions of rows over many passes, by DuckDB: those of the model, where rows come late, are gone, and come back."""

import random
from collections.abc import Sequence
from functools import cache

import duckdb
import pytest

from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.transpiled import by_duckdb
from tests.components.history_model import HistoryModel, SourceRow
from tests.sql.history_relations import as_found, expected_rows, rows_sql, some_rows, stored_sql

_transpiled = cache(by_duckdb)
_COLUMNS = ("a", "b", "value", "note")


class Versions:
    """The query and the model of a history, of which each pass goes on from the versions of the model."""

    def __init__(self, *, dated: bool, close: bool = True) -> None:
        self.dated, self.model, self.con = dated, HistoryModel(close), duckdb.connect(config={"threads": 1})
        self.con.execute("CREATE MACRO timestamp_micros(n) AS make_timestamp(n)")
        history = RowHistory(("a", "b"), "changed" if dated else "", ("note",), close)
        columns = (*_COLUMNS, *(["changed"] if dated else []))
        self.text = as_found(wanted_history(history, columns, "stored", "given", "(SELECT at FROM now)"), dated=dated)

    def wanted(self, rows: Sequence[SourceRow], at: int) -> list[str]:
        """The versions after a pass over rows at a time."""
        relations = {
            "stored": stored_sql(self.model, dated=self.dated),
            "given": rows_sql(rows, dated=self.dated),
            "now": f'(SELECT timestamp_micros({at}) AS "at")',
        }
        for name, relation in relations.items():
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {relation}")
        return expected_rows(self.con.execute(_transpiled(self.text)).fetchall())

    def check(self, rows: Sequence[SourceRow], at: int) -> None:
        """A pass, and another one of the same rows, which changes nothing."""
        found = self.wanted(rows, at)
        self.model.pass_over(rows, at)
        expected = sorted(str((key, *rest)) for key, *rest in self.model.rows)
        assert found == expected
        assert self.wanted(rows, at + 7) == expected


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("passes", [4, pytest.param(40, marks=pytest.mark.long)])
def test_versions_are_those_of_the_model_over_many_passes(dated: bool, close: bool, passes: int) -> None:
    chance, versions = random.Random(f"{dated}{close}"), Versions(dated=dated, close=close)  # noqa: S311 rows, not keys
    for number in range(passes):
        versions.check(some_rows(chance, number, dated=dated), chance.randrange(12))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (15, [(1, 1, 10), (3, 15, 20), (2, 20, None)]),
        (5, [(1, 1, 5), (3, 5, 10), (2, 20, None)]),
        (20, [(1, 1, 10), (3, 20, None)]),
        (25, [(1, 1, 10), (2, 20, 25), (3, 25, None)]),
    ],
)
def test_a_late_row_leaves_the_current_version_behind_a_gap(
    changed: int, expected: list[tuple[int, int, int | None]]
) -> None:
    """The row was deleted at 10, and inserted again at 20 with other values."""
    versions = Versions(dated=True)
    for key, value, time, at in ((1, 1, 1, 5), (2, 1, 1, 10), (1, 2, 20, 21), (1, 3, changed, 30)):
        versions.check([SourceRow((key, "x"), value, 1, time)], at)
    assert [(v.value, v.since, v.until) for v in versions.model.versions[(1, "x")]] == expected
