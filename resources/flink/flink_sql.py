"""The text of a Flink job: generated rows into tables of the catalog, by this project's sink or by Delta's own.

Both take a fixed `uid` of a table that is declared here, by which a checkpoint restores the sink. This project's sink reads
its credentials from the environment of its process and finds columns by name.

Delta's connector (delta-flink 4.4) requires: Flink's catalog has the name of Unity Catalog's; the catalog and each sink have
the endpoint, without a slash at its end, and a bearer token. It finds columns by position.

Flink's TIMESTAMP becomes TIMESTAMP_NTZ, which hides a whole schema from DuckDB: a timestamp is TIMESTAMP_LTZ here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from resources.column_types import sql_type
from resources.declarations import TableDeclaration
from resources.sql.duckdb_sql import literal


@dataclass(frozen=True)
class Insert:
    """Rows that Flink generates and appends to a table.

    Attributes:
        uid: The sink's, the same in every run.
        rows: How many, numbered `seq` from 1 on.
        rows_per_second: The rate of the source.
        columns: The table's columns in its order, as Flink's SQL over `seq`.
    """

    table: TableDeclaration
    uid: str
    rows: int
    rows_per_second: int
    columns: Sequence[str]


@dataclass(frozen=True)
class FlinkTarget:
    """The catalog of the tables.

    Attributes:
        catalog: Its name, in Unity Catalog and in Flink.
        database: The schema that the catalog is opened with.
        catalog_options: The options of CREATE CATALOG.
        sink_options: The options of a sink, by its uid.
    """

    catalog: str
    database: str
    catalog_options: Mapping[str, str] = field(repr=False)
    sink_options: Callable[[str], Mapping[str, str]] = field(repr=False)


def own_sink(name: str, database: str, endpoint: str) -> FlinkTarget:
    """Return a Unity Catalog for this project's sink: Flink's catalog of the same name holds the declared tables only."""
    return FlinkTarget(
        name,
        database,
        {"type": "generic_in_memory"},
        lambda uid: {"connector": "ratify", "endpoint": endpoint, "uid": uid},
    )


def delta_connector(name: str, database: str, endpoint: str, token: str) -> FlinkTarget:
    """Return a Unity Catalog for Delta's own connector; its SQL has no OAuth, only a bearer token."""
    to = {"endpoint": endpoint.rstrip("/"), "token": token}
    return FlinkTarget(name, database, {"type": "unitycatalog", **to}, lambda uid: {"connector": "delta", **to, "uid": uid})


def job_text(target: FlinkTarget, inserts: Sequence[Insert], settings: Mapping[str, str]) -> str:
    """Return the SQL that runs the inserts one after the other, each a job of the name `schema.table`."""
    catalog = {**target.catalog_options, "default-database": target.database}
    statements = [
        *(f"SET {literal(key)} = {literal(value)}" for key, value in {**_SETTINGS, **settings}.items()),
        f"CREATE CATALOG {quoted(target.catalog)} WITH ({_options(catalog)})",
    ]
    for number, insert in enumerate(inserts, 1):
        statements += _insert(target, insert, f"generated_{number}")
    return ";\n".join(statements) + ";\n"


_SETTINGS = {
    "execution.runtime-mode": "streaming",
    # The client waits for each job, and stops at the first failure.
    "table.dml-sync": "true",
    "table.local-time-zone": "UTC",
}


def _insert(target: FlinkTarget, insert: Insert, source: str) -> list[str]:
    table = insert.table
    sink = ".".join(map(quoted, (target.catalog, table.layer, table.name)))
    columns = ", ".join(f"{quoted(column.name)} {flink_type(column.type)}" for column in table.columns)
    rows = ", ".join(
        f"CAST({expression} AS {flink_type(column.type)}) AS {quoted(column.name)}"
        for expression, column in zip(insert.columns, table.columns, strict=True)
    )
    generated = {
        "connector": "datagen",
        "rows-per-second": str(insert.rows_per_second),
        "fields.seq.kind": "sequence",
        "fields.seq.start": "1",
        "fields.seq.end": str(insert.rows),
    }
    # A checkpoint holds the generator's position in its sequence, and what the sink has committed.
    return [
        f"SET 'pipeline.name' = {literal(table.table_name)}",
        f"CREATE TEMPORARY TABLE default_catalog.default_database.{source} (seq BIGINT) WITH ({_options(generated)})",
        f"CREATE TEMPORARY TABLE {sink} ({columns}) WITH ({_options(target.sink_options(insert.uid))})",
        f"INSERT INTO {sink} SELECT {rows} FROM default_catalog.default_database.{source}",
    ]


def flink_type(spark: str) -> str:
    """Return the Flink type of a Spark SQL type."""
    return sql_type(spark).flink


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in options.items())
