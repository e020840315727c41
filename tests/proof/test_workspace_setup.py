"""The proof's tables on a workspace: which statements run and as whom, and what Spark makes of those that it knows, too."""

from collections.abc import Iterator, Sequence

import pytest

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import StatementFailed
from ratify_lakehouse.proof import proof_lifecycle
from ratify_lakehouse.proof.proof_tables import ORDERS_STREAM, TABLES
from ratify_lakehouse.proof.workspace_setup import SAMPLES, cleanup_sql, setup_sql, workspace_cleanup, workspace_setup
from tests.catalog.workspace_server import (
    ADMIN_TOKEN,
    CLIENT_ID,
    CLIENT_SECRET,
    WAREHOUSE,
    FakeWorkspace,
    failed,
    fake_workspace,
)
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.locks("schema of the proof")

ADMIN = "admin@example.com"


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorkspace]:
    """With an admin's token beside the service principal's client."""
    with fake_workspace() as fake:
        for name, value in (
            ("UNITY_HOST", fake.url),
            ("UNITY_TOKEN", ADMIN_TOKEN),
            ("UNITY_CLIENT_ID", CLIENT_ID),
            ("UNITY_CLIENT_SECRET", CLIENT_SECRET),
            ("UNITY_CATALOG", "proof"),
            ("UNITY_WAREHOUSE_ID", WAREHOUSE),
        ):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("ratify_lakehouse.catalog.sql_warehouse._FIRST_POLL_S", 0.01)
        yield fake


def warehouse() -> SqlWarehouse:
    return SqlWarehouse(catalog=UnityCatalog(admin=True))


def test_the_statements() -> None:
    catalog, schema, *rest = setup_sql("my-`cat", "a@b", new_catalog=True)
    assert (catalog, schema) == ("CREATE CATALOG IF NOT EXISTS `my-``cat`", "CREATE SCHEMA IF NOT EXISTS `my-``cat`.tpch")
    assert rest[:2] == [
        "GRANT USE CATALOG ON CATALOG `my-``cat` TO `a@b`",
        "GRANT USE SCHEMA, SELECT, MODIFY, CREATE TABLE, EXTERNAL USE SCHEMA ON SCHEMA `my-``cat`.tpch TO `a@b`",
    ]
    assert [clone.split(" ")[4].partition("\n")[0] for clone in rest[2:]] == [f"`my-``cat`.tpch.{name}" for name in TABLES]
    region = setup_sql("proof", "a@b", new_catalog=False)[3]
    assert region == (
        "CREATE OR REPLACE TABLE `proof`.tpch.region\n"
        "COMMENT 'Regions of the world'\n"
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.feature.catalogManaged' = 'supported', "
        "'ratify.owner' = 'data-platform')\n"
        "AS SELECT CAST(r_regionkey AS int) AS r_regionkey, CAST(r_name AS string) AS r_name, "
        "CAST(r_comment AS string) AS r_comment FROM samples.tpch.region"
    )
    assert cleanup_sql("proof") == ["DROP SCHEMA IF EXISTS `proof`.tpch CASCADE"]


def test_the_admin_sets_up_for_the_service_principal(workspace: FakeWorkspace) -> None:
    workspace_setup(warehouse())
    assert workspace.statements == setup_sql("proof", CLIENT_ID, new_catalog=True)
    workspace.catalogs.append("proof")
    workspace_setup(warehouse())
    assert workspace.statements[-11:] == setup_sql("proof", CLIENT_ID, new_catalog=False)
    workspace_cleanup(warehouse())
    assert workspace.statements[-1:] == cleanup_sql("proof")
    assert set(workspace.callers) == {ADMIN}
    # All the rest is the service principal's.
    assert UnityCatalog().bearer_token() in workspace.tokens


@pytest.mark.parametrize(
    ("unset", "caller"),
    [("UNITY_CLIENT_ID", ADMIN), ("UNITY_TOKEN", CLIENT_ID)],
    ids=["a user", "a service principal"],
)
def test_one_identity_is_granted_what_it_needs(
    workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch, unset: str, caller: str
) -> None:
    monkeypatch.delenv(unset)
    workspace_setup(warehouse())
    assert workspace.statements == setup_sql("proof", caller, new_catalog=True)
    assert set(workspace.callers) == {caller}


def test_a_setup_that_fails_in_the_middle_is_done_by_another(workspace: FakeWorkspace) -> None:
    refused = "[INSUFFICIENT_PERMISSIONS] User does not have EXTERNAL USE SCHEMA on Schema 'proof.tpch'."
    workspace.courses = {"EXTERNAL USE SCHEMA": [failed(refused, sql_state="42501")]}
    with pytest.raises(StatementFailed, match=r"statement 4 of 12 \(GRANT USE SCHEMA, SELECT.*INSUFFICIENT_PERMISSIONS"):
        workspace_setup(warehouse())
    assert len(workspace.statements) == 4
    workspace.courses = {}
    workspace_setup(warehouse())
    assert workspace.statements[4:] == setup_sql("proof", CLIENT_ID, new_catalog=True)


@pytest.mark.stack
def test_a_clone_has_the_declared_types_and_can_be_made_again(lake: Lakehouse, fresh_schema: str) -> None:
    """Of other types, as `samples.tpch` has them."""
    table = TABLES["partsupp"]
    lake.catalog.ensure_schemas((fresh_schema, samples := f"{fresh_schema}_samples"))
    lake.run(
        f"CREATE TABLE {samples}.partsupp TBLPROPERTIES ('delta.columnMapping.mode' = 'none') AS SELECT 1L AS ps_partkey, "
        "2L AS ps_suppkey, 3 AS ps_availqty, CAST(4.25 AS decimal(18,2)) AS ps_supplycost, 'c' AS ps_comment"
    )
    [clone] = [sql for sql in setup_sql("ratify", "x", new_catalog=False) if sql.endswith(".partsupp")]
    clone = clone.replace(f"{SAMPLES}.", f"ratify.{samples}.").replace("`.tpch.", f"`.{fresh_schema}.")
    for version in (0, 1):
        lake.run(clone)
        made = lake.catalog.table(f"ratify.{fresh_schema}.partsupp")
        assert {column.name: column.type_text for column in made.columns or []} == table.column_types
        assert lake.catalog.version(f"ratify.{fresh_schema}.partsupp") == version
        [row] = lake.run(f"SELECT * FROM {fresh_schema}.partsupp")
        assert [str(value) for value in row.values()] == ["1", "2", "3", "4.25", "c"]


class SparkInPlaceOfTheWarehouse(SqlWarehouse):
    """Runs the statements here, on what Spark has of the samples; it knows no GRANT."""

    def run(self, statements: Sequence[str]) -> None:
        spark = Spark(catalog=self.catalog)
        for sql in statements:
            if "GRANT" not in sql:
                spark.sql(sql.replace(f"{SAMPLES}.", "ratify.tpch_samples."))
        spark.close()


@pytest.mark.long
@pytest.mark.stack
def test_the_proof_goes_on_from_what_the_workspace_made(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake.duckdb.session() as session:
        proof_lifecycle.create_tables(lake.spark)
        loaded = proof_lifecycle.load(session, 0.001)
        lake.catalog.ensure_schemas(("tpch_samples",))
        for name in TABLES:
            lake.run(f"CREATE TABLE ratify.tpch_samples.{name} AS SELECT * FROM ratify.tpch.{name}")
        lake.spark.ensure_table(ORDERS_STREAM)
        monkeypatch.setattr(
            proof_lifecycle, "workspace_setup", lambda at: at.run(setup_sql("ratify", "x", new_catalog=False))
        )
        lines = proof_lifecycle.clone(lake.spark, session, SparkInPlaceOfTheWarehouse(catalog=lake.catalog))
    assert [(line.table, line.digest) for line in lines] == [(line.table, line.digest) for line in loaded]
    assert [line.version for line in lines] == [lake.version(table) for table in TABLES.values()]
    # What an earlier run of the proof had made beside them is gone.
    assert proof_lifecycle.existing_tables(lake.catalog) == sorted(TABLES)
