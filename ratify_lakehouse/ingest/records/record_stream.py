"""Streams records into a bronze table as they came: each exactly once, through crashes, from any source.

A micro-batch is one commit, which carries the query's id and the batch's number, so that a repeated batch changes nothing.
If the checkpoint is lost, the stream resumes after the records in the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.append_only import refuse_append_only
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions, StreamRun, follow
from ratify_lakehouse.errors import NotConfigured, ResetRefused, StreamError
from ratify_lakehouse.ingest.records.erased_records import without_erased
from ratify_lakehouse.ingest.records.file_records import FileSource
from ratify_lakehouse.ingest.records.kafka_records import KafkaSource
from ratify_lakehouse.ingest.records.rate_records import RateSource
from ratify_lakehouse.ingest.records.record_source import SOURCE, RecordSource, SourceOptions, SourceProgress, StreamTarget
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.wording import counted


@dataclass(frozen=True, kw_only=True)
class Ingested(SourceProgress):
    """What a run of the stream did.

    Attributes:
        removed: Rows that a full refresh removed before.
    """

    run: StreamRun
    created: bool
    removed: int
    refreshed: Commit | None


def source_of(config: SourceOptions, kafka: Kafka) -> RecordSource:
    """Return the source, by configuration or settings.

    Raises:
        NotConfigured: no source has that name.
    """
    sources: dict[str, Callable[[], RecordSource]] = {
        "kafka": lambda: KafkaSource(kafka, config),
        "files": lambda: FileSource(config),
        "rate": lambda: RateSource(config),
    }
    name = config.events.source
    if name not in sources:
        raise NotConfigured(
            f"There is no source {name!r}: set EVENTS_SOURCE, or `source` in the run's configuration, to one of "
            f"{', '.join(sources)}. Azure Event Hubs is read as kafka, by its Kafka endpoint. Kinesis has no reader here: "
            "let Firehose land its records in a folder, and read it as files. See docs/streaming.md."
        )
    return sources[name]()


def ingest(
    kafka: Kafka,
    spark: Spark,
    table: TableDeclaration,
    config: SourceOptions,
    options: StreamOptions | None = None,
) -> Ingested:
    """Stream records into bronze: all that are waiting, or as `options` says.

    Args:
        kafka: Used only where the records come from Kafka.
        spark: Reads and writes.
        table: Has the columns `RECORD`.
        config: Names the source.
        options: How the stream is run.

    Raises:
        BrokerUnavailable, BrokerDenied, TopicMissing, LandingUnavailable, NotConfigured: nothing was read.
        OffsetsExpired: records expired before they were read, and `on_data_loss` is "fail".
        FileUnreadable: a file is too large, or damaged.
        ResetRefused: a full refresh that is not forced.
        UnsafeTable: likewise, of a table that only allows appends.
        StreamBusy: another process of this home runs it.
        StreamFailed: the stream ended too early; started again, it resumes.
    """
    source = source_of(config, kafka)
    with stream_checkpoints.exclusive(table):
        return _ingest(source, spark, table, config, options or StreamOptions())


def _ingest(
    source: RecordSource, spark: Spark, table: TableDeclaration, config: SourceOptions, options: StreamOptions
) -> Ingested:
    source.look()
    created = spark.ensure_table(table)
    removed, refreshed = _refresh(source, spark, table, config) if config.full_refresh else (0, None)
    checkpoint = "/".join(filter(None, (stream_checkpoints.folder(spark, table), source.checkpoint)))
    stream_checkpoints.sweep(checkpoint)
    target = StreamTarget(spark, table, checkpoint, stream_checkpoints.has_begun(checkpoint))
    read = source.reader(target, options)
    query = _query(target, lambda: without_erased(spark, table, read()), config, options)
    try:
        run = follow(spark, query, replace(options, on_progress=source.progressed), explain=source.explained)
    except StreamError as error:
        source.failed(target, error)
        raise
    progress = source.progress(target, run, options)
    return Ingested(**vars(progress), run=run, created=created, removed=removed, refreshed=refreshed)


def _query(
    target: StreamTarget, reader: Callable[[], Any], config: SourceOptions, options: StreamOptions
) -> Callable[[], Any]:
    spark, table = target.spark, target.table

    def query() -> Any:
        # Otherwise each task, one a partition, would write a small file.
        spark.session.conf.set("spark.databricks.delta.optimizeWrite.binSize", f"{config.min_file_bytes}b")
        rows = spark.partitionable(table, reader())
        writer = rows.writeStream.format("delta").queryName(table.name).option("optimizeWrite", "true")
        writer = writer.option("checkpointLocation", target.checkpoint).trigger(**options.trigger)
        return writer.toTable(spark.sql_name(table))

    return query


def _refresh(
    source: RecordSource, spark: Spark, table: TableDeclaration, config: SourceOptions
) -> tuple[int, Commit | None]:
    """Truncate the table and delete its streams' checkpoints; return how many rows it had, and the commit.

    Raises:
        ResetRefused: `force` is not set.
        UnsafeTable: the table only allows appends.
    """
    full_name = spark.full_name(table)
    refuse_append_only(full_name, spark.catalog.table(full_name).properties or {})
    rows = spark.count(table)
    if rows and not config.force:
        raise ResetRefused(source.refusal(spark, table) + _others(spark, table, config.events.source))
    # In this order: with rows and without checkpoints, a stream resumes after the rows.
    stream_checkpoints.forget(spark, table)
    return rows, spark.truncate(full_name) if rows else None


def _others(spark: Spark, table: TableDeclaration, name: str) -> str:
    query = f"SELECT {SOURCE} AS source, count(*) AS rows FROM {{raw}} GROUP BY ALL ORDER BY ALL"
    others = [row for row in spark.rows(spark.sql(query, raw=spark.table(table))) if row["source"] != name]
    shown = ", ".join(f"{row['source']} ({counted(row['rows'], 'row')})" for row in others)
    return f" The table also has records of other sources, which this one cannot give: {shown}." if others else ""
