"""`ratify sql`: one statement through Spark or DuckDB."""

from contextlib import suppress
from typing import Annotated, Any, Literal

import typer

from ratify_lakehouse.cli.terminal_output import Json, show
from ratify_lakehouse.wording import counted


def sql(
    query: Annotated[str, typer.Argument(help="One statement; tables are named schema.table.")],
    engine: Annotated[Literal["spark", "duckdb"], typer.Option(help="Which engine runs it.")] = "spark",
    as_json: Json = False,
) -> None:
    """Run a SQL statement through either engine."""
    rows = _spark_rows(query) if engine == "spark" else _duckdb_rows(query)
    show(counted(len(rows), "row"), rows, as_json=as_json, counts=())


def _spark_rows(query: str) -> list[dict[str, Any]]:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.engines.spark.spark_engine import Spark
    from ratify_lakehouse.engines.spark.spark_errors import query_errors
    from ratify_lakehouse.engines.spark.utc_rows import rows_in_utc

    spark = Spark(catalog=UnityCatalog())
    # PySpark takes a second to import: not before there is a session to use it with.
    _ = spark.session
    try:
        with query_errors():
            return rows_in_utc(spark, spark.sql(query))
    finally:
        spark.close()


def _duckdb_rows(query: str) -> list[dict[str, Any]]:
    import duckdb

    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDB
    from ratify_lakehouse.errors import QueryFailed

    engine = DuckDB(catalog=UnityCatalog())
    try:
        with engine.session() as session:
            session.attach()
            session.readable.check_in_catalog(query)
            # So that `schema.table` is a table of the catalog, as it is in Spark. A catalog without schemas cannot be used.
            with suppress(duckdb.CatalogException):
                session.con.execute(f"USE {ALIAS}")
            try:
                return session.records(query)
            finally:
                session.con.execute("USE memory")
    except duckdb.Error as error:
        raise QueryFailed(str(error).strip()) from error
    finally:
        engine.close()
