"""`ratify plan` in words: tests/components/test_pass_plan.py has what it finds."""

from typing import Any

from ratify_lakehouse.cli import plan_command
from ratify_lakehouse.components.strategies.pass_plan import PassPlan


def test_an_input_without_a_new_version_is_said_to_be_as_it_was() -> None:
    class Planned:
        strategy = "incremental"

        def plan(self, *_: object) -> PassPlan:
            return PassPlan("changed rows", "", {"bronze.a": (1, 1), "bronze.b": (1, 2), "bronze.c": (None, 3)})

    class Opened:
        spark = duckdb = None

    opened: Any = Opened()
    table: Any = Planned()
    row = plan_command._row(opened, "silver.t", table)
    assert row["versions of the inputs"] == "bronze.a: still 1\nbronze.b: 1 to 2\nbronze.c: 3"
