"""Tables of records: the asset that streams a source's records into a table as they came, each exactly once."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.table_asset import TableChange, asset_key, result, rows_version, step_name, table_spec
from ratify_lakehouse.components.table_preview import preview_by_spark
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions
from ratify_lakehouse.errors import SourceNotConfigured
from ratify_lakehouse.ingest.file_source import LandedCopy
from ratify_lakehouse.ingest.records.record_source import OFFSETS, DeclaredSource, SourceOptions
from ratify_lakehouse.ingest.records.record_stream import Ingested, ingest
from ratify_lakehouse.kafka.kafka_client import Kafka


class RecordConfig(SourceOptions, dg.Config):
    """What records one run reads, and how. What is empty is as the settings say."""


@dataclass(frozen=True)
class RecordTable:
    """A table of records, and where they come from.

    Attributes:
        declaration: With the columns `RECORD`.
        source: What its declaration says of the source; the configuration of a run may say otherwise.
        landed: What an erasure does with files that have records of the subject.
    """

    declaration: TableDeclaration
    source: DeclaredSource
    landed: LandedCopy = LandedCopy.KEEP

    @property
    def options(self) -> SourceOptions:
        """What a run reads that is not configured."""
        return SourceOptions(**self.source.model_dump())


def topic_key(topic: str) -> dg.AssetKey:
    """Return the key of a topic of Kafka, which others write."""
    return dg.AssetKey(["kafka", topic])


def topic_spec(topic: str) -> dg.AssetSpec:
    """Return a topic of Kafka as an asset that others write."""
    return dg.AssetSpec(topic_key(topic), description=f"Kafka's topic {topic}", group_name="kafka", kinds={"kafka"})


def record_table(table: RecordTable) -> dg.AssetsDefinition:
    """Return the asset of a table of records, which takes in all records that are waiting.

    Where no source is configured, it is skipped, and so are the assets that depend on it.
    """
    declaration = table.declaration
    # Kafka is optional, and "Materialize all" is for everybody.
    spec = table_spec(declaration, list(map(topic_key, table.source.topics))).replace_attributes(skippable=True)

    @dg.multi_asset(name=step_name(declaration), specs=[spec], config_schema=_config_of(table).to_fields_dict())
    @in_one_line(declaration.table_name, lambda: bool(declaration.personal))
    def asset(context: dg.AssetExecutionContext, kafka: Kafka, spark: Spark) -> Iterator[dg.MaterializeResult[Any]]:
        config = SourceOptions(**context.op_execution_context.op_config)

        def log_batch(batch: Batch) -> None:
            numbers = (batch.number, batch.rows, batch.processed_rate, batch.offsets_behind)
            context.log.info("batch %d: %d records, %.0f/s, behind: %s", *numbers)

        began = time.monotonic()
        try:
            done = ingest(kafka, spark, declaration, config, StreamOptions(on_batch=log_batch))
        except SourceNotConfigured as error:
            context.log.warning("%s is skipped. %s", declaration.table_name, error)
            return
        for gap in done.gaps:
            context.log.warning("%s/%d: offsets %d to %d are missing", gap.topic, gap.partition, gap.first, gap.last)
        yield record_table_result(declaration, spark, done, context.instance, time.monotonic() - began)

    return asset


def _config_of(table: RecordTable) -> type[RecordConfig]:
    """The configuration of the table's runs, whose defaults are what its declaration says."""
    declared: dict[str, Any] = {
        name: (field.annotation, Field(default=getattr(table.source, name), description=field.description))
        for name, field in DeclaredSource.model_fields.items()
    }
    return create_model("RecordConfig", __base__=RecordConfig, **declared)


def record_table_result(
    declaration: TableDeclaration, spark: Spark, done: Ingested, instance: dg.DagsterInstance, seconds: float | None = None
) -> dg.MaterializeResult[Any]:
    """Return the result of a run of the stream, with the commits of earlier runs that died before they reported theirs."""
    reported = -1 if done.created else int(last_reported(declaration, instance).get("Delta version", -1))
    version = spark.catalog.version(spark.full_name(declaration))
    history = spark.history(spark.full_name(declaration), version - reported) if version > reported else []
    mine = [
        commit for commit in history if commit.version > reported and commit.parameters.get("queryId") == done.run.query_id
    ]
    versions = [commit.version for commit in mine] + ([done.refreshed.version] if done.refreshed else [])
    change = TableChange(
        version=version,
        rows_version=rows_version(spark, spark.full_name(declaration), version),
        rows=spark.count(declaration, version),
        added=sum(commit.rows_added or 0 for commit in mine) - done.removed,
        versions=sorted([*([0] if reported < 0 else []), *versions]),
        last=history[0] if history else None,
        seconds=seconds,
        preview=preview_by_spark(spark, declaration),
        more=_numbers(done, sum(commit.metrics.get("numOutputBytes", 0) for commit in mine)),
    )
    return result(declaration, change, instance)


def last_reported(declaration: TableDeclaration, instance: dg.DagsterInstance) -> Mapping[str, Any]:
    """Return the metadata of a table's last materialization, as plain values; empty if there is none."""
    event = instance.get_latest_materialization_event(asset_key(declaration))
    metadata = event.asset_materialization.metadata if event and event.asset_materialization else {}
    return {name: value.value for name, value in metadata.items()}


def _numbers(done: Ingested, bytes_written: int) -> dict[str, Any]:
    """A run's numbers; Dagster plots those that are floats or ints."""
    numbers: dict[str, Any] = {"records read": done.run.rows, "bytes written": bytes_written, **done.run.numbers}
    if done.position is not None:
        numbers |= {OFFSETS: dg.MetadataValue.json(done.position), "offsets behind": done.behind}
    if done.gaps:
        numbers["offsets lost"] = sum(gap.last - gap.first + 1 for gap in done.gaps)
        numbers["gaps"] = dg.MetadataValue.table([dg.TableRecord(asdict(gap)) for gap in done.gaps])
    return numbers | dict(done.more)
