"""What maintenance a table allows: by who manages it, what its catalog permits, who asks, and what the table has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratify_lakehouse.catalog import unity_catalog
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta import maintenance_rules as rules
from ratify_lakehouse.delta.maintenance_rules import GovernedTable, Maintenance, Manager
from ratify_lakehouse.errors import UnsafeTable
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import READ, WRITE, CatalogAddress, ClientPrincipal
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import pairs

ALL = frozenset({"compact", "clean", "clean_log"})
TABLES = {
    "of our catalog": (GovernedTable("c.s.t", Manager.EMBEDDED, ALL), ALL),
    "withheld": (GovernedTable("c.s.t", Manager.EMBEDDED, frozenset({"clean"})), {"clean"}),
    "without MODIFY": (GovernedTable("c.s.t", Manager.EMBEDDED, denied="MODIFY is missing."), set[str]()),
    "with column mapping": (GovernedTable("c.s.t", Manager.EMBEDDED, ALL, unsupported="It is mapped."), ALL - {"compact"}),
    "of another server": (GovernedTable("c.s.t", Manager.OPEN_SOURCE), set[str]()),
    "of Databricks": (GovernedTable("c.s.t", Manager.DATABRICKS), set[str]()),
    "external": (GovernedTable("c.s.t", Manager.EXTERNAL), ALL),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_allowed(name: str) -> None:
    table, allowed = TABLES[name]
    found = rules.rules_of(table)
    assert list(found.rules) == ["checkpoint", "compact", "clean", "clean_log", "restore"]
    assert {operation for operation, rule in found.rules.items() if rule.allowed} == {"checkpoint", "restore", *allowed}
    for operation, rule in found.rules.items():
        assert (rule.operation, bool(rule.by), bool(rule.reason)) == (operation, True, True)
        assert "{}" not in rule.by
        if rule.allowed:
            found.require(operation)
        else:
            with pytest.raises(UnsafeTable, match=rf"c\.s\.t: {operation} is not allowed\. .* Instead: "):
                found.require(operation)


@pytest.mark.parametrize("manager", [Manager.OPEN_SOURCE, Manager.EMBEDDED])
def test_the_substitute_comes_with_its_warning(manager: Manager) -> None:
    rule = rules.rules_of(GovernedTable("c.s.t", manager)).rules[Maintenance.COMPACT]
    assert "INSERT INTO c.s.t REPLACE WHERE" in rule.by
    assert "streams that read the table stop, and its change data feed reports each of these rows" in rule.by


@pytest.fixture(scope="module")
def withholding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogAddress]:
    with catalog_here(tmp_path_factory.mktemp("withholding"), maintenance=["clean"]) as started:
        yield started


@pytest.mark.server
def test_what_a_server_answers(withholding: CatalogAddress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = pairs()
    with withholding.client() as admin:
        create_declared(admin, table)
        external = {
            "name": "ext",
            "catalog_name": "ratify",
            "schema_name": "bronze",
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": tmp_path.as_uri(),
        }
        admin.post("/tables", json=external).raise_for_status()
        reader, writer = (ClientPrincipal.create(admin, *privileges).token() for privileges in (READ, WRITE))

    def asked(token: str, name: str = table.table_name) -> rules.MaintenanceRules:
        return rules.maintenance_rules(UnityCatalog(host=withholding.url, token=token), f"ratify.{name}")

    found = asked(writer)
    assert found.manager is Manager.EMBEDDED
    assert [found.rules[one].allowed for one in (Maintenance.COMPACT, Maintenance.CLEAN)] == [False, True]
    assert "withholds this" in found.rules[Maintenance.COMPACT].reason
    denied = asked(reader).rules[Maintenance.CLEAN]
    assert (denied.allowed, "MODIFY" in denied.reason, denied.by) == (False, True, "ask the owner for MODIFY on it.")
    assert asked(withholding.token, "bronze.ext").manager is Manager.EXTERNAL
    monkeypatch.setattr(unity_catalog, "_MAINTENANCE", "GET /v1/what/another/server/does/not/list")
    assert asked(writer).manager is Manager.OPEN_SOURCE
    monkeypatch.setattr(rules, "is_databricks", lambda _: True)
    assert asked(writer).manager is Manager.DATABRICKS
