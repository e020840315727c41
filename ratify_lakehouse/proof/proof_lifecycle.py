"""The proof's schema: created, loaded and dropped."""

from collections.abc import Generator
from contextlib import contextmanager

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import OWNER, Engine
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDBSession
from ratify_lakehouse.engines.duckdb.extension_loading import load_extension
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing, UnsafeTable
from ratify_lakehouse.proof.proof_ledger import LOAD, STEPS, ProofEntry
from ratify_lakehouse.proof.proof_rows import LOADED
from ratify_lakehouse.proof.proof_tables import TABLES
from ratify_lakehouse.proof.row_digest import DigestPart, by_duckdb
from ratify_lakehouse.proof.workspace_setup import workspace_setup
from ratify_lakehouse.settings import TPCH, Settings
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.spark_sql import identifier

_GENERATED = "tpch_made"


def existing_tables(catalog: UnityCatalog) -> list[str]:
    """Return the names of the schema's tables; none if the schema is missing.

    Raises:
        UnsafeTable: one of them was not created by Ratify.
    """
    name = catalog.connection.name
    try:
        tables = catalog.ask(f"list the tables of {TPCH}", lambda: list(catalog.client.tables.list(name, TPCH)))
    except TableMissing:
        return []
    names = sorted(table.name or "" for table in tables)
    for table in names:
        if OWNER not in (catalog.table(f"{name}.{TPCH}.{table}").properties or {}):
            raise UnsafeTable(
                f"{name}.{TPCH}.{table} was not created by Ratify, and the proof drops every table of its schema. Drop it "
                "yourself, or give the proof another catalog (UNITY_CATALOG)."
            )
    return names


def drop_tables(spark: Spark) -> list[str]:
    """Drop every table of the schema; return their names.

    Raises:
        UnsafeTable: one of them was not created by Ratify; nothing was dropped.
    """
    names = existing_tables(spark.catalog)
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {identifier(spark.catalog.connection.name)}.{TPCH}.{name}")
    return names


def create_tables(spark: Spark) -> None:
    """Create the schema and the eight tables, empty, in place of any earlier ones."""
    # Spark creates the schema, so that Spark may drop it: the creator of a schema owns it.
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {identifier(spark.catalog.connection.name)}.{TPCH}")
    drop_tables(spark)
    for table in TABLES.values():
        spark.ensure_table(table)
    spark.ensure_table(STEPS)


def load(session: DuckDBSession, scale_factor: float) -> list[ProofEntry]:
    """Generate the rows of TPC-H and append them, each table in one version; return what was loaded."""
    with _generated(session, scale_factor):
        digests = by_duckdb(session, [DigestPart.of(table, f"{_GENERATED}.{table.name}") for table in TABLES.values()])
        entries = list[ProofEntry]()
        for table, digest in zip(TABLES.values(), digests, strict=True):
            appended = session.append(table, f"SELECT * FROM {_GENERATED}.{table.name}", [f"dbgen:{scale_factor}"])
            entries.append(ProofEntry("setup", Engine.DUCKDB, table.name, LOAD, appended.version, LOADED, digest))
    return entries


def clone(spark: Spark, session: DuckDBSession, warehouse: SqlWarehouse) -> list[ProofEntry]:
    """Have a workspace create the eight tables from its samples, in place of earlier ones; return what DuckDB reads then.

    Raises:
        UnsafeTable: as `drop_tables`.
        As `workspace_setup`.
    """
    catalog = spark.catalog
    for name in set(existing_tables(catalog)) - set(TABLES):
        spark.sql(f"DROP TABLE IF EXISTS {identifier(catalog.connection.name)}.{TPCH}.{name}")
    workspace_setup(warehouse)
    catalog.ensure_schemas((STEPS.layer,))
    spark.ensure_table(STEPS)
    digests = by_duckdb(session, [DigestPart.of(table, f"{ALIAS}.{TPCH}.{table.name}") for table in TABLES.values()])
    return [
        ProofEntry(
            "setup",
            Engine.DATABRICKS,
            table.name,
            LOAD,
            catalog.version(table.full_name(catalog.connection.name)),
            LOADED,
            digest,
        )
        for table, digest in zip(TABLES.values(), digests, strict=True)
    ]


def remove(spark: Spark) -> list[str]:
    """Drop the tables and the schema, where they are; return the names of the tables.

    Raises:
        UnsafeTable: as `drop_tables`.
    """
    dropped = drop_tables(spark)
    spark.sql(f"DROP SCHEMA IF EXISTS {identifier(spark.catalog.connection.name)}.{TPCH}")
    return dropped


@contextmanager
def _generated(session: DuckDBSession, scale_factor: float) -> Generator[None]:
    """The rows of TPC-H in a database of their own, which may be larger than memory."""
    load_extension(session.con, "tpch")
    file = Settings().home / "cross_engine" / "generated.duckdb"
    file.parent.mkdir(parents=True, exist_ok=True)
    leftovers = (file, file.with_name(f"{file.name}.wal"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    session.con.execute(f"ATTACH {literal(str(file))} AS {_GENERATED}")
    try:
        session.con.execute(f"CALL dbgen(sf = {scale_factor}, catalog = {literal(_GENERATED)})")
        yield
    finally:
        session.con.execute(f"DETACH {_GENERATED}")
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
