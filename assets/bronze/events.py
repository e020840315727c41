"""The tracker's events as they came from Kafka."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from assets.bronze.kafka_stream import RECORD, Ingested, StreamConfig, ingest
from assets.tables import Written, asset_key, result, table_spec
from resources.history import Engine
from resources.kafka import Kafka, Offsets
from resources.spark import Spark
from resources.streams import Batch, Course, offsets
from resources.tables import TableDeclaration

TRACKER_EVENTS_RAW = TableDeclaration(
    "bronze",
    "tracker_events_raw",
    RECORD,
    "Records of Kafka as they came, each exactly once",
    Engine.SPARK,
    frozenset({"STREAMING UPDATE"}),
)

OFFSETS = "offsets"
"""Metadata key: the next offset of each partition."""

KAFKA_EVENTS = dg.AssetKey(["kafka", "tracker_events"])
"""The topics, as an asset that others make."""


@dg.multi_asset(name=TRACKER_EVENTS_RAW.name, specs=[table_spec(TRACKER_EVENTS_RAW, [KAFKA_EVENTS])])
def tracker_events_raw(
    context: dg.AssetExecutionContext, config: StreamConfig, kafka: Kafka, spark: Spark
) -> dg.MaterializeResult[Any]:
    """Take all records that are in the topics now into bronze."""

    def told(batch: Batch) -> None:
        context.log.info(
            "batch %d: %d records, %.0f/s, %s behind", batch.number, batch.rows, batch.processed_rate, batch.offsets_behind
        )

    done = ingest(kafka, spark, TRACKER_EVENTS_RAW, config, Course(on_batch=told))
    for gap in done.gaps:
        context.log.warning("%s/%d: offsets %d to %d were gone", gap.topic, gap.partition, gap.first, gap.last)
    return ingested(spark, done, context.instance)


def ingested(spark: Spark, done: Ingested, instance: dg.DagsterInstance) -> dg.MaterializeResult[Any]:
    """Return what a run of the stream did, with what runs did that could not tell of it to this instance."""
    return result(TRACKER_EVENTS_RAW, _written(spark, done, _reported(instance)))


def reported_offsets(instance: dg.DagsterInstance) -> Offsets:
    """Return where the stream stood at its last materialization; empty if there is none."""
    metadata = _last(instance)
    return offsets(metadata[OFFSETS].value) if OFFSETS in metadata else {}


def _last(instance: dg.DagsterInstance) -> Mapping[str, dg.MetadataValue[Any]]:
    event = instance.get_latest_materialization_event(asset_key(TRACKER_EVENTS_RAW))
    return event.asset_materialization.metadata if event and event.asset_materialization else {}


def _reported(instance: dg.DagsterInstance) -> int:
    """The version that the last materialization left; -1 if there is none."""
    metadata = _last(instance)
    return int(metadata["Delta version"].value) if "Delta version" in metadata else -1


def _written(spark: Spark, done: Ingested, reported: int) -> Written:
    """What there is to tell, with the commits of runs that died before they could tell of theirs."""
    full_name = TRACKER_EVENTS_RAW.full_name(spark.catalog.connection.name)
    reported = -1 if done.created else reported
    version = spark.catalog.version(full_name)
    history = spark.history(full_name, version - reported) if version > reported else []
    mine = [
        commit for commit in history if commit.version > reported and commit.parameters.get("queryId") == done.run.query_id
    ]
    versions = [commit.version for commit in mine] + ([done.refreshed.version] if done.refreshed else [])
    return Written(
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
        OFFSETS: dg.MetadataValue.json(done.position),
        "records read": run.rows,
        "offsets behind": done.behind,
        "bytes written": written,
        **run.numbers,
    }
    if done.gaps:
        numbers["offsets lost"] = sum(gap.last - gap.first + 1 for gap in done.gaps)
        numbers["gaps"] = dg.MetadataValue.table([dg.TableRecord(asdict(gap)) for gap in done.gaps])
    return numbers


kafka_events = dg.AssetSpec(
    KAFKA_EVENTS, description="Topics with the tracker's events", group_name="kafka", kinds={"kafka"}
)
