"""The tracker's events as they came."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from components.stream.stream_config import StreamConfig
from components.table_asset import TableChange, asset_key, result, table_spec
from ingest.records.record_source import OFFSETS, RECORD
from ingest.records.record_stream import Ingested, ingest
from resources.declarations import Engine, TableDeclaration
from resources.kafka.kafka_client import Kafka, Offsets
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import Batch, StreamOptions, offsets

TRACKER_EVENTS_RAW = TableDeclaration(
    "bronze",
    "tracker_events_raw",
    RECORD,
    "Records as they came, each exactly once",
    Engine.SPARK,
    frozenset({"STREAMING UPDATE"}),
)

KAFKA_EVENTS = dg.AssetKey(["kafka", "tracker_events"])
"""The topics, as an asset that others make."""


@dg.multi_asset(name=TRACKER_EVENTS_RAW.name, specs=[table_spec(TRACKER_EVENTS_RAW, [KAFKA_EVENTS])])
def tracker_events_raw(
    context: dg.AssetExecutionContext, config: StreamConfig, kafka: Kafka, spark: Spark
) -> dg.MaterializeResult[Any]:
    """Take all records that are there now into bronze."""

    def told(batch: Batch) -> None:
        context.log.info(
            "batch %d: %d records, %.0f/s, behind: %s", batch.number, batch.rows, batch.processed_rate, batch.offsets_behind
        )

    done = ingest(kafka, spark, TRACKER_EVENTS_RAW, config, StreamOptions(on_batch=told))
    for gap in done.gaps:
        context.log.warning("%s/%d: offsets %d to %d were gone", gap.topic, gap.partition, gap.first, gap.last)
    return ingested(spark, done, context.instance)


def ingested(spark: Spark, done: Ingested, instance: dg.DagsterInstance) -> dg.MaterializeResult[Any]:
    """Return what a run of the stream did, with what runs did that could not tell of it to this instance."""
    return result(TRACKER_EVENTS_RAW, _written(spark, done, _reported(instance)))


def reported_offsets(instance: dg.DagsterInstance) -> Offsets:
    """Return where the stream from Kafka stood at its last materialization; empty if there is none."""
    return offsets(last_reported(instance).get(OFFSETS))


def last_reported(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    """Return the metadata of the last materialization, as plain values; empty if there is none."""
    event = instance.get_latest_materialization_event(asset_key(TRACKER_EVENTS_RAW))
    metadata = event.asset_materialization.metadata if event and event.asset_materialization else {}
    return {name: value.value for name, value in metadata.items()}


def _reported(instance: dg.DagsterInstance) -> int:
    """The version that the last materialization left; -1 if there is none."""
    return int(last_reported(instance).get("Delta version", -1))


def _written(spark: Spark, done: Ingested, reported: int) -> TableChange:
    """What there is to tell, with the commits of runs that died before they could tell of theirs."""
    full_name = TRACKER_EVENTS_RAW.full_name(spark.catalog.connection.name)
    reported = -1 if done.created else reported
    version = spark.catalog.version(full_name)
    history = spark.history(full_name, version - reported) if version > reported else []
    mine = [
        commit for commit in history if commit.version > reported and commit.parameters.get("queryId") == done.run.query_id
    ]
    versions = [commit.version for commit in mine] + ([done.refreshed.version] if done.refreshed else [])
    return TableChange(
        version=version,
        rows=spark.count(TRACKER_EVENTS_RAW),
        added=sum(commit.rows_added or 0 for commit in mine) - done.removed,
        versions=sorted([*([0] if reported < 0 else []), *versions]),
        committed_at=mine[0].timestamp if mine else None,
        more=_numbers(done, sum(commit.metrics.get("numOutputBytes", 0) for commit in mine)),
    )


def _numbers(done: Ingested, written: int) -> dict[str, Any]:
    """A run's numbers; those that are floats or ints, Dagster plots."""
    run = done.run
    numbers: dict[str, Any] = {
        "records read": run.rows,
        "bytes written": written,
        **run.numbers,
    }
    if done.position is not None:
        numbers |= {OFFSETS: dg.MetadataValue.json(done.position), "offsets behind": done.behind}
    if done.gaps:
        numbers["offsets lost"] = sum(gap.last - gap.first + 1 for gap in done.gaps)
        numbers["gaps"] = dg.MetadataValue.table([dg.TableRecord(asdict(gap)) for gap in done.gaps])
    return numbers | dict(done.more)


kafka_events = dg.AssetSpec(
    KAFKA_EVENTS, description="Topics with the tracker's events", group_name="kafka", kinds={"kafka"}
)
