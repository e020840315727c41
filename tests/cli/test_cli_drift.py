"""`ratify drift`, and the checks of what is declared: what they show of a table that somebody has changed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli import dagster_session
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.components.checks.table_findings import columns_as_declared
from ratify_lakehouse.components.checks.upkeep_check import MAINTAINED, upkeep_check
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.definitions import interventions, table_drift
from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS
from ratify_lakehouse.table_layout import Layout
from tests.cli.test_cli_restore import ratify
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


def drift(*words: str) -> Any:
    answer = CliRunner().invoke(app, ["drift", *words, "--json"])
    rows = json.loads(answer.stdout)
    assert answer.exit_code == (1 if rows or answer.stderr else 0), answer.output
    return [(row["what"], row["declared"], row["actual"]) for row in rows], answer.stderr


def checked(lake: Lakehouse, declaration: TableDeclaration) -> dg.AssetCheckEvaluation:
    with dg.DagsterInstance.ephemeral() as instance:
        # Small files, of which the other module tests, do not matter here.
        table = MaintainedTable(declaration, TableMaintenance(enabled=False))
        checks = dg.Definitions(asset_checks=[upkeep_check(table)], resources={"duckdb": lake.another_duckdb()})
        done = checks.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        (found,) = done.get_asset_check_evaluations()
    assert (found.check_name, found.blocking) == (MAINTAINED, False)
    assert found.passed or found.severity is dg.AssetCheckSeverity.WARN
    return found


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[TableDeclaration]:
    """The tables of the project."""
    found = list[TableDeclaration]()

    @contextmanager
    def instance() -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.ephemeral() as opened:
            yield opened

    def tables() -> Any:
        return SimpleNamespace(declarations={asset_key(each): each for each in found})

    monkeypatch.setattr(dagster_session, "dagster_instance", instance)
    monkeypatch.setattr(table_drift, "declared_tables", tables)
    return found


@pytest.mark.stack
def test_a_table_that_somebody_changed(
    lake: Lakehouse, declared: list[TableDeclaration], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pairs(
        columns=(Column("id", "bigint", "of a row"), Column("v", "string", nullable=False)),
        properties={"catalog.team_name": "shop", "delta.logRetentionDuration": "interval 60 days"},
    )
    declared.append(table)
    name, full_name = table.table_name, lake.full(table)
    assert checked(lake, table).description == "The table does not exist yet."
    assert drift() == ([], "")
    assert "TableMissing" in ratify("drift", name, exit_code=1)
    assert "The project declares no table ratify.bronze.nope" in ratify("drift", "bronze.nope", exit_code=1)

    lake.create(table)
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    assert checked(lake, table).passed
    assert drift() == ([], "")

    lake.alter(table, {"catalog.team_name": "another"})
    found = checked(lake, table)
    assert not found.passed
    assert "`ratify drift --apply`" in str(found.metadata["property catalog.team_name"].value)
    lake.run(f"ALTER TABLE {full_name} ALTER COLUMN id COMMENT 'another'")
    lake.run(f"ALTER TABLE {full_name} ADD COLUMN extra INT")
    # And the declaration has changed since the table was created.
    newer = replace(
        table,
        columns=(*table.columns, Column("more", "array<double>", "a new one")),
        comment="another",
        properties={**table.properties, "delta.enableChangeDataFeed": "true"},
    )
    declared[:] = [newer]
    extra = ("extra column extra", "no such column", "int")
    correctable = [
        ("property catalog.team_name", "shop", "another"),
        ("property delta.enableChangeDataFeed", "true", "not set"),
        ("comment", "another", "of a test"),
        ("comment of column id", "of a row", "another"),
        ("missing column more", "array<double>", "no such column"),
    ]
    assert drift() == ([*correctable, extra], "")
    assert checked(lake, newer).metadata["differences"].value == 4
    # What readers would stumble over is of the check that blocks.
    columns = columns_as_declared(newer, lake.duckdb.log(full_name).refresh())
    assert (columns.passed, columns.warns, columns.numbers["columns that differ"]) == (False, False, 2)

    monkeypatch.setattr(interventions, "targeted_by_runs", lambda _: {asset_key(newer): "a run"})
    rows, message = drift(name, "--apply")
    assert (rows, "which would change under it" in message) == ([], True)
    assert lake.version(table) == 4
    monkeypatch.setattr(interventions, "targeted_by_runs", lambda _: {})
    assert drift(name, "--apply") == ([extra], "")
    assert lake.version(table) == 6
    commits = lake.spark.history(full_name, 2)
    assert [commit.operation for commit in commits] == ["ADD COLUMNS", "SET TBLPROPERTIES"]
    assert all(commit.record["acknowledged"] == "as declared" for commit in commits)
    # Every engine reads what is there, and writes.
    assert lake.rows(table) == [(1, "a", None, None)]
    stored = replace(newer, columns=(*table.columns, Column("extra", "int"), newer.columns[-1]))
    append(lake.duckdb, stored, "SELECT 2::BIGINT, 'b', 7::INT, [0.5::DOUBLE]", "two")
    with lake.another_duckdb().session() as session:
        assert session.rows(f"SELECT id, more FROM {ALIAS}.{name} ORDER BY id") == [(1, None), (2, [0.5])]
    entry = lake.catalog.table(full_name)
    comments = {column.name: column.comment for column in entry.columns or ()}
    assert (comments["id"], comments["more"]) == ("of a row", "a new one")
    assert (entry.comment, (entry.properties or {})["catalog.team_name"]) == ("another", "shop")
    assert "Differences that are left" in CliRunner().invoke(app, ["drift", name, "--apply"]).stdout
    assert lake.version(table) == 7


@pytest.mark.stack
def test_another_layout_is_given_by_a_command_of_its_own(lake: Lakehouse, declared: list[TableDeclaration]) -> None:
    """It takes no commit of metadata only: the files are written again."""
    table = pairs()
    name, plain = table.table_name, "neither partitioned nor clustered"
    lake.create(table)
    for at in (2, 1):
        append(lake.duckdb, table, f"SELECT {at}::BIGINT, 'a'", f"load {at}")
    declared[:] = [replace(table, layout=Layout(cluster_by=("id",)))]
    assert drift(name, "--apply") == ([("layout", "clustered by id", plain)], "")
    for words in (("--dry-run",), ()):
        (row,) = json.loads(ratify("layout", name, "--json", *words))
        assert (row["layout"], row["declared"], row["files"]) == (plain, "clustered by id", 2)
    assert (row["committed in"], row["files now"]) == (3, 1)
    assert drift() == ([], "")
    assert checked(lake, declared[0]).passed
    (row,) = json.loads(ratify("layout", "--json"))
    assert (row["layout"], "committed in" in row) == ("clustered by id", False)
    declared[:] = [table]
    assert "To undo it, declare it as clustered by id" in ratify("layout", name)
    assert drift() == ([], "")
    assert lake.stored(table) == [(1, "a"), (2, "a")]
