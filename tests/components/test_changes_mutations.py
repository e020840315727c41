"""The comparison of incremental tables with their queries finds faults: each of these is put into the code here."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from ratify_lakehouse.components.strategies import computed_rows, incremental_pass
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.delta import computed_inputs
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from ratify_lakehouse.engines.spark import key_ranges, spark_engine
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.affected_keys import KeysQuery
from tests.components.incremental_tables import (
    IncrementalTable,
    IncrementalTables,
    KilledPass,
    killed,
    moved,
    without_pictures,
)
from tests.components.random_queries import RandomQuery
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.long]

GROUPS = RandomQuery(
    "SELECT k AS k0, count(*) AS v0 FROM bronze.e GROUP BY k", {"k0": "int", "v0": "other"}, ("k0",), "groups"
)
PAIRS = RandomQuery(
    "SELECT e.id AS k0, count(o.id) AS v0 FROM bronze.e AS e LEFT JOIN bronze.e AS o ON e.k = o.k AND o.id <> e.id "
    "GROUP BY e.id",
    {"k0": "int", "v0": "other"},
    ("k0",),
    "groups",
)
Step = Callable[[IncrementalTables, IncrementalTable, pytest.MonkeyPatch], None]


def statements(*texts: str) -> Step:
    """Commits to the input `e`, and a pass after them."""

    def step(tables: IncrementalTables, table: IncrementalTable, patch: pytest.MonkeyPatch) -> None:
        for text in texts:
            tables.inputs.run(text.format(e=f"{tables.inputs.schema}.e", t=f"{tables.schema}.{table.name}"))
        tables.run(table)

    return step


def an_input_moves(tables: IncrementalTables, table: IncrementalTable, patch: pytest.MonkeyPatch) -> None:
    """A row comes in after the pass has looked which version it reads."""
    tables.inputs.run(f"INSERT INTO {tables.inputs.schema}.e VALUES (50, 1, NULL, 1)")
    insert = f"INSERT INTO {tables.inputs.schema}.e VALUES (51, 2, NULL, 1)"
    with moved(patch, ChangedRows, "to_compute", lambda: tables.inputs.run(insert)):
        tables.run(table)
    tables.run(table)


def a_kill_between_two_commits(tables: IncrementalTables, table: IncrementalTable, patch: pytest.MonkeyPatch) -> None:
    """The table's commit is made, that to its quarantine is not."""
    tables.inputs.run(f"INSERT INTO {tables.inputs.schema}.e VALUES (50, 1, NULL, 1), (51, NULL, NULL, 1)")
    with killed(patch, Spark, "merge_changes", after=True, calls=1), suppress(KilledPass):
        tables.run(table)
    tables.run(table)


def other_code(tables: IncrementalTables, table: IncrementalTable, patch: pytest.MonkeyPatch) -> None:
    table.query = replace(table.query, text=table.query.text.replace("count(*)", "count(*) + 1"))
    tables.run(table)


@dataclass(frozen=True)
class Fault:
    """A fault, and the step after which it shows."""

    owner: Any
    name: str
    faulty: Callable[..., Any]
    step: Step
    query: RandomQuery = GROUPS
    quarantined: bool = False


_feed, _record, _merge_sql = QueryInputs._feed, ChangedRows.record, spark_engine.changes_merge_sql
_keys_queries, _condition = incremental_pass.keys_queries, key_ranges.key_condition
_rows_of, _stored_of_keys = Scope.rows_of, computed_rows.stored_of_keys
_among = key_ranges.KeyRanges.among


def _as_they_are(self: QueryInputs, name: Any, since: int) -> str:
    return f"(SELECT * FROM {_feed(self, name, since)} WHERE _change_type IN ('insert', 'update_postimage'))"


def _no_deletes(*arguments: Any, **named: Any) -> str:
    return _merge_sql(*arguments, **named).replace(
        "WHEN MATCHED AND NOT source.ratify_present THEN DELETE\nWHEN MATCHED THEN",
        "WHEN MATCHED AND source.ratify_present THEN",
    )


def _by_equal_keys(query: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: query(*arguments).replace("IS NOT DISTINCT FROM", "=")


def _without_a_hash(self: key_ranges.KeyRanges, relation: str) -> str:
    return _among(replace(self, hashes=self.hashes[1:]), relation)


def _next_version(self: QueryInputs, name: Any, since: int) -> str:
    return _feed(self, name, since + 1)


def _first_places(*arguments: Any, **more: Any) -> list[KeysQuery]:
    return list({each.input: each for each in reversed(_keys_queries(*arguments, **more))}.values())


def _latest(self: QueryInputs) -> dict[str, InputVersion]:
    found = {self.full_name(name): version for name, version in self._versions.items()}
    return {name: replace(version, version=self.spark.catalog.version(name)) for name, version in found.items()}


def _same_code(self: ChangedRows, declaration: Any) -> ComputedInputs:
    return replace(_record(self, declaration), query="")


class _Everything(frozenset[str]):
    def __contains__(self, _: object) -> bool:
        return True


_INSERTED = "INSERT INTO {e} VALUES (40, 1, NULL, 1), (41, 2, NULL, 1)"
_DELETED = "DELETE FROM {e} WHERE k = 2"
_MORE = "INSERT INTO {e} VALUES (42, 3, NULL, 1)"

FAULTS: dict[str, Fault] = {
    "changed rows are read as they are, not as they were": Fault(
        QueryInputs, "_feed", _as_they_are, statements("UPDATE {e} SET k = 7 WHERE k = 1")
    ),
    "rows that are gone stay": Fault(spark_engine, "changes_merge_sql", _no_deletes, statements(_DELETED)),
    "NULL keys are never affected": Fault(
        Scope, "rows_of", _by_equal_keys(_rows_of), statements("INSERT INTO {e} VALUES (43, NULL, NULL, 1)")
    ),
    "NULL keys are not found in the table": Fault(
        computed_rows, "stored_of_keys", _by_equal_keys(_stored_of_keys), statements("DELETE FROM {e} WHERE k IS NULL")
    ),
    "the ranges of keys have no NULL": Fault(
        key_ranges,
        "key_condition",
        lambda key, values, **_: _condition(key, values, nulls=False),
        statements("INSERT INTO {e} VALUES (43, NULL, NULL, 1)"),
    ),
    "the hash of a key is left out": Fault(key_ranges.KeyRanges, "among", _without_a_hash, statements(_INSERTED)),
    "the first version is left out": Fault(QueryInputs, "_feed", _next_version, statements(_INSERTED, _MORE)),
    "of two places of an input one counts": Fault(
        incremental_pass, "keys_queries", _first_places, statements("INSERT INTO {e} VALUES (44, 1, NULL, 1)"), PAIRS
    ),
    "the record names a version that was not read": Fault(QueryInputs, "versions", property(_latest), an_input_moves),
    "other code goes unnoticed": Fault(ChangedRows, "record", _same_code, other_code),
    "a commit of somebody else goes unnoticed": Fault(
        computed_inputs, "SAME_ROWS", _Everything(), statements("DELETE FROM {t} WHERE k0 = 1")
    ),
    "a quarantine that was left behind goes unnoticed": Fault(
        incremental_pass,
        "with_quarantine",
        lambda record, *_: record,
        a_kill_between_two_commits,
        RandomQuery("SELECT id AS k1, k AS k0 FROM bronze.e", {"k1": "int", "k0": "int"}, ("k0", "k1"), "rows"),
        quarantined=True,
    ),
}


def scenario(lake: Lakehouse, patch: pytest.MonkeyPatch, fault: Fault, *, faulty: bool) -> None:
    without_pictures(patch)
    tables = IncrementalTables(lake, f"s_{uuid4().hex[:10]}", "mutations", [fault.query])
    (table,) = tables.tables
    table.quarantined = fault.quarantined
    name = f"{tables.inputs.schema}.e"
    tables.inputs.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    tables.inputs.run(
        f"INSERT OVERWRITE {name} VALUES (1, 1, NULL, 1), (2, 1, NULL, 2), (3, 2, NULL, 3), (4, NULL, NULL, 4)"
    )
    with patch.context() as within:
        if faulty:
            within.setattr(fault.owner, fault.name, fault.faulty)
        tables.run(table)
        fault.step(tables, table, patch)
    tables.compare([table])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    with pytest.raises(AssertionError):
        scenario(lake, monkeypatch, FAULTS[fault], faulty=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_the_fault_the_tables_are_equal(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    scenario(lake, monkeypatch, FAULTS[fault], faulty=False)
