"""The tables of the cross-engine proof on a Databricks workspace: cloned from `samples.tpch` by a SQL warehouse.

`samples.tpch` has other types than DuckDB's `dbgen` has and the declarations have (decimal(18,2) for decimal(15,2), int for
some bigint), so every column is cast: engines then read the same types wherever the proof runs.
"""

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import SAFE_PROPERTIES, TableDeclaration
from ratify_lakehouse.proof.proof_tables import TABLES
from ratify_lakehouse.settings import TPCH
from ratify_lakehouse.sql.spark_sql import identifier, literal

SAMPLES = "samples.tpch"
"""Where a workspace has TPC-H."""

SAMPLES_SCALE_FACTOR = 5.0

GRANTS = ("USE SCHEMA", "SELECT", "MODIFY", "CREATE TABLE", "EXTERNAL USE SCHEMA")
"""On the schema, for who does all the rest. The last one even an owner lacks until it is granted."""


def setup_sql(catalog: str, principal: str, *, new_catalog: bool) -> list[str]:
    """Return the statements that put the proof's tables into their first state, in place of earlier ones.

    Args:
        catalog: The catalog.
        principal: Who is to work with the tables: the application id of a service principal, or a user name.
        new_catalog: The catalog is to be created too.
    """
    schema, to = f"{identifier(catalog)}.{TPCH}", identifier(principal)
    return [
        *([f"CREATE CATALOG IF NOT EXISTS {identifier(catalog)}"] if new_catalog else []),
        f"CREATE SCHEMA IF NOT EXISTS {schema}",
        f"GRANT USE CATALOG ON CATALOG {identifier(catalog)} TO {to}",
        f"GRANT {', '.join(GRANTS)} ON SCHEMA {schema} TO {to}",
        *(_clone(catalog, table) for table in TABLES.values()),
    ]


def cleanup_sql(catalog: str) -> list[str]:
    """Return the statement that drops the schema of the proof with its tables; the catalog may contain a lakehouse."""
    return [f"DROP SCHEMA IF EXISTS {identifier(catalog)}.{TPCH} CASCADE"]


def workspace_setup(warehouse: SqlWarehouse) -> None:
    """Run `setup_sql` for who comes with UNITY_CLIENT_ID, or else for who runs it.

    Args:
        warehouse: Of a catalog resource with `admin=True`, who has to own the catalog, or be allowed to create it.

    Raises:
        As `SqlWarehouse.run`.
    """
    admin = warehouse.catalog
    name = admin.connection.name
    engines = UnityCatalog(host=admin.host, name=admin.name, token=admin.token).connection
    principal = engines.client_id or admin.ask("ask who it is", lambda: admin.client.current_user.me().user_name) or ""
    catalogs = {catalog.name for catalog in admin.ask("list catalogs", lambda: list(admin.client.catalogs.list()))}
    warehouse.run(setup_sql(name, principal, new_catalog=name not in catalogs))


def workspace_cleanup(warehouse: SqlWarehouse) -> None:
    """Run `cleanup_sql`.

    Raises:
        As `SqlWarehouse.run`.
    """
    warehouse.run(cleanup_sql(warehouse.catalog.connection.name))


def _clone(catalog: str, table: TableDeclaration) -> str:
    columns = ", ".join(f"CAST({column.name} AS {column.type}) AS {column.name}" for column in table.columns)
    properties = {
        "delta.feature.catalogManaged": "supported",
        **SAFE_PROPERTIES,
        **table.properties,
        "ratify.owner": table.owner,
    }
    shown = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    return (
        f"CREATE OR REPLACE TABLE {identifier(catalog)}.{table.layer}.{table.name}\n"
        f"COMMENT {literal(table.comment)}\nTBLPROPERTIES ({shown})\n"
        f"AS SELECT {columns} FROM {SAMPLES}.{table.name}"
    )
