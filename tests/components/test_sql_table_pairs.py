"""Every pair of attributes of `SqlTable` is refused, as the docs say, or the table is computed, and then corrected."""

import itertools
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.declarations import APPEND_ONLY, CHANGE_DATA_FEED
from ratify_lakehouse.errors import ExpectationFailed, TableMissing
from tests.components.attribute_pairs import covering
from tests.components.declared_pairs import Case, declared, misjudged
from tests.components.incremental_tables import without_pictures
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

_BY_PERIOD, _HISTORY = {"append_by_period": {"period": "day"}}, {"history": {"updated_at": "changed"}}
_PARTITIONS, _APPEND = {"partitions": {"column": "day", "values": ["mon", "tue"]}}, {"append": {"input": "bronze.a"}}
_OF = {"append_by_period": "append_by_period", "history": "scd2", "partitions": "partition", "append": "append"}
_VALUES: Mapping[str, list[Any]] = {
    "made": [
        {},
        {"strategy": "incremental"},
        {"strategy": "append"},
        {"strategy": "append_by_period", **_BY_PERIOD},
        {"strategy": "scd2"},
        {"strategy": "partition", **_PARTITIONS},
        {"engine": "duckdb"},
        {"engine": "duckdb", "strategy": "incremental"},
        {"engine": "duckdb", "strategy": "append_by_period", **_BY_PERIOD},
    ],
    "of": [{}, _BY_PERIOD, _HISTORY, _PARTITIONS, _APPEND],
    "keys": [["id", "day"], ["id"], []],
    "action": ["", "warn", "drop", "quarantine", "fail"],
    "intermediate_columns": [[], ["helper"]],
    "unique": [None, {"latest": ["changed"]}],
    "reconcile": [None, {"input": "bronze.a", "row_id": ["row_id"], "key": ["id", "day"]}],
    "change_data_feed": [False, True],
    "table_properties": [{}, {APPEND_ONLY: "TRUE"}, {CHANGE_DATA_FEED: "TRUE"}, {CHANGE_DATA_FEED: "false"}],
    "layout": [{}, {"partition_by": ["day"]}, {"cluster_by": ["id"]}, {"cluster_by": ["helper"]}],
    "sort": [[], ["id"], ["helper"]],
    "freshness": [None, {}],
    "day": ["", "day"],
    "columns": [[], [{"name": "helper", "description": "Of expectations"}]],
}
_SQL = "SELECT id, day, n, changed, row_id, n + 1 AS helper FROM bronze.a"


def goes(case: Case, made: Mapping[str, Any]) -> bool:
    """Whether the documentation says that these go together, in a table of an engine and a strategy."""
    given = {name: value for name, value in case.items() if value}
    strategy, by_duckdb = made.get("strategy", "full"), "engine" in made
    append_only = APPEND_ONLY in given.get("table_properties", {})
    feed = given.get("change_data_feed") or case.get("table_properties") == {CHANGE_DATA_FEED: "TRUE"}
    of_helper = case.get("layout") == {"cluster_by": ["helper"]} or case.get("sort") == ["helper"]
    return not any(
        (
            case.get("made", made) != made,
            any(_OF[name] != strategy for name in given.get("of", {})),
            case.get("keys") == [] and (strategy not in ("append", "append_by_period") or "unique" in given),
            case.get("keys") == ["id"] and strategy == "partition",
            given.get("action") == "quarantine" and strategy in ("append", "append_by_period", "partition"),
            given.get("action") == "drop" and "reconcile" in given,
            "unique" in given and strategy == "append",
            "reconcile" in given and strategy not in ("full", "incremental"),
            "day" in given and strategy != "incremental",
            # These strategies replace rows, and DuckDB the files of a table.
            append_only and strategy not in ("append", "append_by_period"),
            feed and by_duckdb and strategy == "full",
            "change_data_feed" in given and case.get("table_properties") == {CHANGE_DATA_FEED: "false"},
            "partition_by" in given.get("layout", {}) and by_duckdb,
            of_helper and "intermediate_columns" in given,
        )
    )


def refused(case: Case) -> bool:
    return not any(goes(case, made) for made in _VALUES["made"])


CASES = covering(_VALUES, refused)


def attributes_of(case: Case) -> dict[str, Any]:
    rule = {"name": "small", "expect": "n < 3", "action": case["action"]}
    own = ("made", "of", "layout", "action", "sort")
    given = {name: value for name, value in case.items() if name not in own and value}
    nested = case["made"] | case["of"] | case["layout"] | ({"maintenance": {"sort": case["sort"]}} if case["sort"] else {})
    return {**given, **nested, "keys": case["keys"], **({"expectations": [rule]} if case["action"] else {})}


def test_every_pair_is_in_a_case() -> None:
    for one, other in itertools.combinations(_VALUES, 2):
        for pair in itertools.product(_VALUES[one], _VALUES[other]):
            assert any((case[one], case[other]) == pair for case in CASES)
    assert len(CASES) < 150


def test_a_declaration_is_refused_as_the_docs_say(tmp_path: Path) -> None:
    def load(number: int, case: Case) -> SqlTable:
        return declared(SqlTable, tmp_path / "silver" / f"t{number}", attributes_of(case), _SQL)

    wrong = misjudged(CASES, refused, load)
    assert not wrong, "\n".join(f"{case}: {what}" for case, what in wrong.items())


_BEFORE = [(1, "mon", 1, "2026-01-01", 1), (2, "tue", 2, "2026-01-01", 2), (3, "mon", 2, "2026-01-02", 3)]
_FAILING = (5, "tue", 3, "2026-01-01", 5)
_OLDER = (1, "mon", 2, "2025-01-01", 6)
_LATER = (4, "wed", 1, "2026-01-03", 4)
_CORRECTED = (2, "tue", 1, "2026-01-04", 2)


def accepted_cases(*, by_duckdb: bool) -> list[tuple[int, Case]]:
    """Those that are accepted, with their numbers."""
    return [(at, case) for at, case in enumerate(CASES) if not refused(case) and ("engine" in case["made"]) == by_duckdb]


class PairTable:
    """A table of a case, the rows of its input, and those that the table is to have."""

    def __init__(self, case: Case) -> None:
        self.case, self.strategy = case, case["made"].get("strategy", "full")
        self.rows = [*_BEFORE, *([_FAILING] if case["action"] else []), *([_OLDER] if case["unique"] else [])]

    @property
    def correction(self) -> list[tuple[Any, ...]]:
        """The rows later: only new ones, where rows are only added to the input, or periods are taken once."""
        if self.strategy in ("append", "append_by_period"):
            return [*self.rows, _LATER]
        return [*(row for row in self.rows if row[0] != _CORRECTED[0]), _LATER, _CORRECTED]

    def expected(self, rows: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
        left_out = self.case["action"] in ("drop", "quarantine")
        kept = [row for row in rows if not (left_out and row[2] > 2) and not (self.case["unique"] and row is _OLDER)]
        return sorted((row[0], row[2]) for row in kept if self.strategy != "partition" or row is not _LATER)


def values_of(rows: list[tuple[Any, ...]]) -> str:
    return ", ".join(f"({i}, '{day}', {n}, DATE '{changed}', {row_id})" for i, day, n, changed, row_id in rows)


_INPUT = "(id BIGINT, day STRING, n BIGINT, changed DATE, row_id BIGINT)"


@pytest.fixture(scope="module")
def with_input(sparkless: Sparkless) -> Sparkless:
    sparkless.catalog.ensure_schemas(("bronze", "silver"))
    sparkless.quick(f"CREATE TABLE ratify.bronze.a {_INPUT} USING DELTA")
    return sparkless


@pytest.mark.server
@pytest.mark.parametrize(("number", "case"), accepted_cases(by_duckdb=True))
def test_what_is_accepted_works_by_duckdb(
    with_input: Sparkless,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    case: Case,
) -> None:
    without_pictures(monkeypatch)
    pair = PairTable(case)
    component = declared(SqlTable, tmp_path / "silver" / f"t{number}", attributes_of(case), _SQL)
    for rows in (pair.rows, pair.correction):
        with_input.quick(f"INSERT OVERWRITE ratify.bronze.a VALUES {values_of(rows)}")
        with pytest.raises(ExpectationFailed) if case["action"] == "fail" else nullcontext():
            list(component.results(with_input.spark, with_input.duckdb))
        if case["action"] == "fail":
            with pytest.raises(TableMissing):
                with_input.version(component.table.declaration)
            continue
        found = with_input.quick(f"SELECT id, n FROM ratify.silver.t{number}")
        assert sorted((row["id"], row["n"]) for row in found) == pair.expected(rows)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize(("number", "case"), accepted_cases(by_duckdb=False))
def test_what_is_accepted_works_by_spark(
    lake: Lakehouse, fresh_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, case: Case
) -> None:
    without_pictures(monkeypatch)
    pair, given = PairTable(case), f"ratify.{fresh_schema}.a"
    lake.catalog.ensure_schemas((fresh_schema,))
    lake.quick(f"CREATE TABLE {given} {_INPUT} USING DELTA")
    sql = _SQL.replace("bronze.a", f"{fresh_schema}.a")
    attributes = yaml.safe_load(yaml.safe_dump(attributes_of(case)).replace("bronze.a", f"{fresh_schema}.a"))
    component = declared(SqlTable, tmp_path / fresh_schema / f"t{number}", attributes, sql)
    for step, rows in enumerate((pair.rows, pair.correction)):
        if step and pair.strategy == "append":
            lake.quick(f"INSERT INTO {given} VALUES {values_of([_LATER])}")
        else:
            lake.quick(f"INSERT OVERWRITE {given} VALUES {values_of(rows)}")
        with pytest.raises(ExpectationFailed) if case["action"] == "fail" else nullcontext():
            list(component.results(lake.spark, None))
        if case["action"] == "fail":
            continue
        current = " WHERE current" if pair.strategy == "scd2" else ""
        found = lake.quick(f"SELECT id, n FROM ratify.{fresh_schema}.t{number}{current}")
        assert sorted((row["id"], row["n"]) for row in found) == pair.expected(rows)
