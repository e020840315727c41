"""The text of a Flink job: rows of a query over topics of Kafka, or generated ones, into tables of the catalog.

This project's sink and Delta's own take a fixed `uid` of a table that is declared here, by which a checkpoint restores the
sink. This project's sink reads its credentials from the environment of its process and finds columns by name.

Delta's connector (delta-flink 4.4) requires: Flink's catalog has the name of Unity Catalog's; the catalog and each sink have
the endpoint, without a slash at its end, and a bearer token. It finds columns by position.

Flink's TIMESTAMP becomes TIMESTAMP_NTZ, which hides a whole schema from DuckDB: a timestamp is TIMESTAMP_LTZ here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.kafka.kafka_client import Isolation
from ratify_lakehouse.sql.duckdb_sql import literal


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
class TopicSource:
    """A topic of Kafka that a query reads.

    Attributes:
        name: Its name in the query.
        topic: The topic.
        time: The time of an event, as Flink's SQL over the record's columns; empty: the query has no use for event time.
        lateness: How long after it Kafka may have received the record, as Flink's interval; later ones are left out.
    """

    name: str
    topic: str
    time: str = ""
    lateness: str = ""


@dataclass(frozen=True)
class StreamInsert:
    """The rows of a query over topics, which are appended to a table for as long as records come.

    Attributes:
        uid: The sink's, and the name of Kafka's consumer group.
        connection: The options of Kafka's connection, without secrets.
        query: One SELECT, in Flink's SQL.
        isolation: Which records of transactions are read.
    """

    table: TableDeclaration
    uid: str
    topics: Sequence[TopicSource]
    connection: Mapping[str, str]
    query: str
    isolation: Isolation = "read_committed"


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
    statements = _opening(target, target.database, settings)
    for number, insert in enumerate(inserts, 1):
        statements += _insert(target, insert, f"generated_{number}")
    return ";\n".join(statements) + ";\n"


def stream_text(target: FlinkTarget, insert: StreamInsert, settings: Mapping[str, str]) -> str:
    """Return the SQL that runs a query over topics, as one job."""
    table = insert.table
    rows = ", ".join(
        f"CAST({quoted(each.name)} AS {flink_type(each.type)}) AS {quoted(each.name)}" for each in table.columns
    )
    sink, create = _sink(target, table, insert.uid)
    consumer = {**insert.connection, "group.id": insert.uid, "isolation.level": insert.isolation}
    statements = [
        *_opening(target, table.layer, settings),
        *(statement for topic in insert.topics for statement in _topic(topic, consumer)),
        create,
        f"INSERT INTO {sink} SELECT {rows} FROM (\n{insert.query}\n)",
    ]
    return ";\n".join(statements) + ";\n"


def _topic(topic: TopicSource, consumer: Mapping[str, str]) -> list[str]:
    """The table of a topic's records, and the view of those that are not late.

    The watermark goes by Kafka's timestamp, as the rule of what is late does, so that it does not depend on how far ahead
    the clocks of devices are. What a window would drop as late is left out before it: after a restart the watermark begins
    again, and would let the first record of each partition into a window whose row was written already.
    """
    columns = [
        *("`key` STRING", "`value` STRING", "`topic` STRING METADATA VIRTUAL", "`partition` INT METADATA VIRTUAL"),
        *("`offset` BIGINT METADATA VIRTUAL", "`timestamp` TIMESTAMP_LTZ(3) METADATA VIRTUAL"),
        *("`headers` MAP<STRING, BYTES> METADATA VIRTUAL", "`processed_at` AS PROCTIME()"),
    ]
    if topic.time:
        watermark = f"`timestamp` - {topic.lateness}"
        columns += [f"`time` AS {topic.time}", f"WATERMARK FOR `time` AS {watermark}"]
    options = {
        "connector": "kafka",
        "topic": topic.topic,
        **{f"properties.{name}": value for name, value in consumer.items()},
        "scan.startup.mode": "earliest-offset",
        # A partition without records would hold the watermark of all others.
        "scan.watermark.idle-timeout": "1 min",
        "key.format": "raw",
        "key.fields": "key",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
    }
    records = f"{topic.name}_records"
    on_time = f" WHERE `time` >= `timestamp` - {topic.lateness}" if topic.time else ""
    return [
        f"CREATE TEMPORARY TABLE {quoted(records)} ({', '.join(columns)}) WITH ({_options(options)})",
        f"CREATE TEMPORARY VIEW {quoted(topic.name)} AS SELECT * FROM {quoted(records)}{on_time}",
    ]


def _opening(target: FlinkTarget, database: str, settings: Mapping[str, str]) -> list[str]:
    catalog = {**target.catalog_options, "default-database": database}
    return [
        *(f"SET {literal(key)} = {literal(value)}" for key, value in {**_SETTINGS, **settings}.items()),
        f"CREATE CATALOG {quoted(target.catalog)} WITH ({_options(catalog)})",
    ]


def _sink(target: FlinkTarget, table: TableDeclaration, uid: str) -> tuple[str, str]:
    """The name of a table in Flink's SQL, and the statement that declares it."""
    sink = ".".join(map(quoted, (target.catalog, table.layer, table.name)))
    columns = ", ".join(f"{quoted(column.name)} {flink_type(column.type)}" for column in table.columns)
    return sink, f"CREATE TEMPORARY TABLE {sink} ({columns}) WITH ({_options(target.sink_options(uid))})"


_SETTINGS = {
    "execution.runtime-mode": "streaming",
    # The client waits for each job, and stops at the first failure.
    "table.dml-sync": "true",
    "table.local-time-zone": "UTC",
}


def _insert(target: FlinkTarget, insert: Insert, source: str) -> list[str]:
    table = insert.table
    sink, create = _sink(target, table, insert.uid)
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
        create,
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
