"""The asset of a table that Flink writes: a run brings it up to date with its topics, and reports what the job did."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.flink.flink_table import FlinkTable, StartedJob
from ratify_lakehouse.components.stream.record_table import topic_key
from ratify_lakehouse.components.table_asset import result, step_name, table_spec
from ratify_lakehouse.components.table_before import TableBefore
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import FULL_REFRESH, Commit
from ratify_lakehouse.engines.flink.flink_engine import Flink, is_available
from ratify_lakehouse.engines.flink.flink_rest import JobNumbers
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import FlinkFailed, NotConfigured
from ratify_lakehouse.kafka.kafka_client import Kafka

_PAUSE_S = 1.0


class FlinkTableConfig(dg.Config):
    """How a run brings the table up to date."""

    full_refresh: bool = Field(default=False, description="Empty the table, and read the topics from their start")


def flink_table(table: FlinkTable) -> dg.AssetsDefinition:
    """Return the asset: a run starts the job at its newest state, and stops it when it has read what is there now.

    Where Kafka or Flink is not configured, it is skipped, and so are the assets that depend on it.
    """
    shown = dg.MetadataValue.md(f"```sql\n{table.query}\n```")
    spec = table_spec(table.declaration, list(map(topic_key, table.topic_names)))
    spec = spec.replace_attributes(skippable=True).merge_attributes(metadata={"query": shown})

    @dg.multi_asset(name=step_name(table.declaration), specs=[spec])
    @in_one_line(table.declaration.table_name, lambda: bool(table.declaration.personal))
    def asset(
        context: dg.AssetExecutionContext, config: FlinkTableConfig, spark: Spark, kafka: Kafka, flink: Flink
    ) -> Iterator[dg.MaterializeResult[Any]]:
        if reason := skip_reason(kafka):
            context.log.warning("%s is skipped. %s", table.name, reason)
            return
        before = TableBefore.of(spark, table.declaration, created=spark.ensure_table(table.declaration))
        offsets = table.offsets(kafka)
        if not config.full_refresh and not table.waiting(kafka, spark):
            yield result(table.declaration, before.change(spark, is_of_job, {"records behind": 0}))
            return
        with table.started(spark, kafka, flink, refresh=config.full_refresh) as job:
            numbers, began = job.job.numbers(), time.monotonic()
            waiting = left = job.behind(offsets)
            while left:
                if not numbers.checkpoints and time.monotonic() - began > flink.timeout_seconds:
                    raise FlinkFailed(
                        f"Flink's job into {table.name} completed no checkpoint within {flink.timeout_seconds:.0f} s: "
                        f"{job.job.rest.url} says whether its cluster has free slots, and what its checkpoints wait for."
                    )
                context.log.info("%d of %d records are not in a checkpoint yet", left, waiting)
                time.sleep(_PAUSE_S)
                left = job.behind(offsets)
                numbers = job.job.numbers()
            job.job.stop()
        more = {**reported(job, numbers), "records read": waiting, "records behind": job.behind(table.offsets(kafka))}
        yield result(table.declaration, before.change(spark, is_of_job, more))

    return asset


def skip_reason(kafka: Kafka) -> str:
    """Return why no job can run here; empty where one can."""
    try:
        _ = kafka.connection
    except NotConfigured as error:
        return str(error)
    return "" if is_available() else "Flink is not installed: pip install 'ratify-lakehouse[embedded,flink]'."


def is_of_job(commit: Commit) -> bool:
    """Whether a job made a commit, or emptied its table before."""
    return commit.engine is Engine.FLINK or (commit.user_metadata or "").startswith(FULL_REFRESH)


def reported(job: StartedJob, numbers: JobNumbers) -> Mapping[str, Any]:
    """Return what a job did, as metadata of a materialization."""
    begun = job.begun
    return {
        "checkpoints": numbers.checkpoints,
        "failed checkpoints": numbers.failed_checkpoints,
        "restarts": numbers.restarts,
        "began at": f"checkpoint {begun.state.number}" if begun.state else "the start of the topics",
    }
