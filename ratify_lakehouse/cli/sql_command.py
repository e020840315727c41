"""`ratify sql`: one statement through Spark or DuckDB."""

import re
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ratify_lakehouse.cli.terminal_output import Json, show
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

# A statement has blanks between its words.
_FILE = re.compile(r"\S+\.sql")
# DuckDB's own extension cannot drop a table of the catalog.
_DROP = re.compile(r"\s*DROP\s+TABLE\s+(?P<or_none>IF\s+EXISTS\s+)?(?P<table>[\w.-]+)\s*;?\s*", re.IGNORECASE)
_LANDING = "_landing"


def sql(
    query: Annotated[
        str, typer.Argument(help="One statement, or a file FILE.sql that holds one; tables are named schema.table.")
    ],
    engine: Annotated[
        Literal["spark", "duckdb"] | None,
        typer.Option(
            help="Which engine runs it: by default Spark, or DuckDB in a project without Spark.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a SQL statement through either engine. With Spark, tables of landed files have the column _landing."""
    query = _text(query)
    without_spark = Settings().without_spark
    if _LANDING in query and (engine == "duckdb" or without_spark):
        advice = "this project runs without it" if without_spark else "leave --engine out"
        raise typer.BadParameter(f"only Spark knows the column {_LANDING}: {advice}.", param_hint="--engine")
    by_duckdb = without_spark if engine is None else engine == "duckdb"
    rows = _duckdb_rows(query) if by_duckdb else _spark_rows(query)
    show(counted(len(rows), "row"), rows, as_json=as_json, counts=())


def _text(query: str) -> str:
    """The statement itself, or the content of the file that it names."""
    if not _FILE.fullmatch(query):
        return query
    file = Path(query).expanduser()
    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}.", param_hint="QUERY")
    return file.read_text(encoding="utf-8")


def _spark_rows(query: str) -> list[dict[str, Any]]:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.engines.spark.spark_engine import Spark
    from ratify_lakehouse.engines.spark.spark_errors import query_errors
    from ratify_lakehouse.engines.spark.utc_rows import rows_in_utc

    spark = Spark(catalog=UnityCatalog())
    # PySpark takes a second to import: not before there is a session to use it with.
    _ = spark.session
    try:
        if _LANDING in query:
            from ratify_lakehouse.components.landing_order import with_landing

            query = with_landing(spark, query)
        with query_errors():
            return rows_in_utc(spark, spark.sql(query))
    finally:
        spark.close()


def _duckdb_rows(query: str) -> list[dict[str, Any]]:
    import duckdb

    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDB
    from ratify_lakehouse.errors import QueryFailed

    catalog = UnityCatalog()
    if dropped := _DROP.fullmatch(query):
        _drop(catalog, dropped["table"].removeprefix(f"{ALIAS}."), or_none=bool(dropped["or_none"]))
        return []
    engine = DuckDB(catalog=catalog)
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


def _drop(catalog: "UnityCatalog", table: str, *, or_none: bool) -> None:
    """Drop a table as Spark does: `ratify undrop` brings it back."""
    from ratify_lakehouse.catalog.dropped_tables import drop_table
    from ratify_lakehouse.cli.engine_session import full_name
    from ratify_lakehouse.errors import TableMissing

    name = full_name(catalog, table)
    with suppress(TableMissing) if or_none else nullcontext():
        drop_table(catalog, name)
