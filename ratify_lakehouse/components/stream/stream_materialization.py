"""What a run of a stream with expectations reports to Dagster: its tables, and its expectations as checks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.expectations.expectation_checks import check_results, check_specs
from ratify_lakehouse.components.expectations.validation import validation_result
from ratify_lakehouse.components.row_flow import IN_QUARANTINE, row_flow
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.quarantine_corrections import read_corrections, write_corrections
from ratify_lakehouse.components.stream.stream_ledger import Account
from ratify_lakehouse.components.stream.validated_stream import MAX_FILES
from ratify_lakehouse.components.table_asset import asset_key, chosen_results, result, step_name, table_spec
from ratify_lakehouse.components.table_before import TableBefore
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.spark.commit_conf import COMMITTED
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.errors import ExpectationFailed, StreamBusy


class StreamTableConfig(dg.Config):
    """How the table of a stream is brought up to date with bronze."""

    max_files: int = Field(default=MAX_FILES, ge=1, description="Files of bronze in one micro-batch at most")
    full_refresh: bool = Field(default=False, description="Rebuild the table from the whole of bronze")
    replay: bool = Field(default=False, description="Then validate again what is in quarantine")
    corrections: str = Field(default="", description="A file of corrected values, one JSON object a line, to replay with")


def stream_table(stream: EventStream) -> dg.AssetsDefinition:
    """Return the asset that validates what is new in bronze, once: into the table or its quarantine, or only counted."""
    key, deps = asset_key(stream.table), [asset_key(stream.records)]
    shown = dg.MetadataValue.md(f"```sql\n{stream.query.text}\n```")

    @dg.multi_asset(
        name=step_name(stream.table),
        specs=[table_spec(table, deps).merge_attributes(metadata={"query": shown}) for table in stream.written],
        check_specs=check_specs(stream.expectations, key),
        # As of a table and its quarantine that a query makes.
        can_subset=True,
    )
    @in_one_line(stream.name, lambda: bool(stream.quarantine.personal))
    def asset(config: StreamTableConfig, spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from chosen_results(materialize_stream(stream, config, spark))

    return asset


def materialize_stream(
    stream: EventStream,
    config: StreamTableConfig,
    spark: Spark,
    options: StreamOptions | None = None,
    instance: dg.DagsterInstance | None = None,
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Run a stream from bronze, as `EventStream.run` does, and yield its results; `instance` as `table_asset.result` has it.

    Raises:
        As `EventStream.run`; BadCorrection.
    """
    key, expectations = asset_key(stream.table), stream.expectations
    corrections = read_corrections(Path(config.corrections)) if config.corrections else []
    created = stream.ensure_tables(spark)
    before = [TableBefore.of(spark, table, created=table in created) for table in stream.written]
    try:
        done = stream.run(spark, max_files=config.max_files, full_refresh=config.full_refresh, options=options)
    except StreamBusy:
        if not (config.replay or corrections):
            raise
        # The continuous mode keeps the table up to date; a replay beside it is safe.
        done = Account()
    except ExpectationFailed as error:
        yield from check_results(expectations, key, validation_result(error.counted))
        raise
    more: dict[str, Any] = {**_flow(done), **done.run, **{f"failed {name}": n for name, n in done.found.failed.items()}}
    if config.replay or corrections:
        write_corrections(spark, stream.quarantine, corrections)
        replayed = stream.replay(spark).numbers
        more |= {"replayed": -replayed["quarantined"], "replayed into the table": replayed["accepted"]}

    def ours(commit: Commit) -> bool:
        # Other writers may commit meanwhile: our commits carry a mark.
        return (commit.user_metadata or "").startswith((COMMITTED, stream.name))

    of_table, of_quarantine = before
    quarantine = of_quarantine.change(spark, ours, more)
    yield result(stream.shown, of_table.change(spark, ours, {IN_QUARANTINE: quarantine.rows, **more}), instance)
    yield result(stream.quarantine, quarantine, instance)
    yield from check_results(expectations, key, done.found)


def _flow(done: Account) -> Mapping[str, int]:
    names = ("records", "accepted", "quarantined", "dropped", "duplicates", "late")
    return row_flow(*(done.numbers[name] for name in names))
