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
