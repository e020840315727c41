"""Rows of a data subject in tables that are dropped, on a server that lets nobody read them."""

import random

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from tests.components.declared_projects import project
from tests.definitions.test_undeclared_rows import ScannedProject, scanned

pytestmark = pytest.mark.server

__all__ = ["project", "scanned"]


def test_dropped_tables_that_nobody_can_read_are_named(scanned: ScannedProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server that lists dropped tables, and lets nobody read them."""
    scanned.fill(random.Random(0))  # noqa: S311
    gone = scanned.create(("old", "gone"), "id bigint, note string", ["7, 'x'"])
    assert scanned.plan("Zoe").not_erased() == []
    assert scanned.admin.delete(f"/tables/ratify.{gone.table_name}").status_code == 200
    assert scanned.plan("Zoe").not_erased() == []
    offered = UnityCatalog.offers

    def offers(catalog: UnityCatalog, name: str, endpoint: str) -> bool:
        return offered(catalog, name, endpoint) and not (endpoint.startswith("GET") and endpoint.endswith("{table_id}"))

    monkeypatch.setattr(UnityCatalog, "offers", offers)
    plan = scanned.plan("Zoe")
    assert plan.not_erased() == [f"ratify.{gone.table_name}"]
    (why,) = (each.why for each in plan.remaining(0) if each.place == f"ratify.{gone.table_name}")
    assert "does not let anybody read dropped tables" in why
    assert f"`ratify undrop ratify.{gone.table_name} --id " in why
