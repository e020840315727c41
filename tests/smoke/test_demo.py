"""`ratify demo` on the stack that runs in its home; tests/sample/test_demo_runs.py has its long forms."""

import json
from subprocess import CompletedProcess

import pytest

from tests.cli.ratify_command import invoke
from tests.smoke.conftest import Smoke
from tests.smoke.finished_demo import assert_it_is_complete

pytestmark = [
    pytest.mark.server,
    pytest.mark.stack,
    pytest.mark.usefixtures("only_session"),
    pytest.mark.one_process("smoke"),
]


def test_a_demo_loads_what_it_lands_and_leaves_nothing_to_do(smoke: Smoke, demo: CompletedProcess[str]) -> None:
    assert "refused" in demo.stdout
    assert "repeated" in demo.stdout
    assert_it_is_complete(smoke.home, demo.stdout)


@pytest.mark.usefixtures("demo")
def test_the_plan_of_tables_that_ship(smoke: Smoke) -> None:
    asked = invoke(smoke.home, "plan", "gold.route_delay", "silver.flights", "--json")
    assert asked.returncode == 0, asked.stderr
    rows = {row["table"]: row for row in json.loads(asked.stdout)}
    assert list(rows) == ["gold.route_delay", "silver.flights"]
    # The demo has compacted their inputs since, which is a version without a change.
    assert [(row["strategy"], row["computes"]) for row in rows.values()] == [("incremental", "changed rows")] * 2
    asked = invoke(smoke.home, "plan", "gold.nothing")
    assert asked.returncode == 1
    assert "There is no SqlTable called gold.nothing" in asked.stderr


@pytest.mark.usefixtures("demo")
def test_a_table_is_run_and_checked_by_its_name(smoke: Smoke) -> None:
    asked = invoke(smoke.home, "run", "gold.route_delay", "--full", "--json")
    assert asked.returncode == 0, asked.stderr
    (row,) = json.loads(asked.stdout)
    assert (row["table"], row["rows added"]) == ("gold.route_delay", 0)
    assert row["rows"] > 100
    passed, _, all_of_them = row["checks passed"].partition(" of ")
    assert passed == all_of_them == "3"
    asked = invoke(smoke.home, "check", "gold.route_delay", "--json")
    assert asked.returncode == 0, asked.stderr
    rows = json.loads(asked.stdout)
    assert {row["passed"] for row in rows} == {"yes"}
    assert {"table_is_intact", "written_as_reported", "maintained_as_declared"} <= {row["check"] for row in rows}
