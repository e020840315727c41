"""`ratify plan`, over the tables that ship."""

import json

import pytest
from typer.testing import CliRunner

from orchestration.cli.main import app
from tests.resources.lakehouse import Lakehouse, engines, lake

__all__ = ["engines", "lake"]

pytestmark = pytest.mark.stack


def test_it_says_what_each_table_would_compute(lake: Lakehouse) -> None:
    """Other tests may have made the tables; where an input is missing, the plan says that the run would fail."""
    asked = CliRunner().invoke(app, ["plan", "gold.route_delay", "silver.flights", "--json"], catch_exceptions=False)
    assert asked.exit_code == 0
    rows = {row["table"]: row for row in json.loads(asked.stdout)}
    assert list(rows) == ["gold.route_delay", "silver.flights"]
    for row in rows.values():
        assert row["strategy"] == "changes"
        assert row["computes"] in {"all rows", "changed rows", "nothing"}


def test_a_table_that_is_none(lake: Lakehouse) -> None:
    asked = CliRunner().invoke(app, ["plan", "gold.nothing"])
    assert asked.exit_code == 1
