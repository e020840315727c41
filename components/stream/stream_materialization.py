"""What a run of a stream with expectations reports to Dagster: its tables, and its expectations as checks."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from components.expectations.expectation_checks import check_results, check_specs
from components.expectations.validation import validation_result
from components.stream.event_stream import EventStream
from components.stream.quarantine_corrections import read_corrections, write_corrections
from components.stream.stream_ledger import Account
from components.stream.validated_stream import MAX_FILES
from components.table_asset import TableChange, asset_key, result, step_name, table_spec
from components.table_preview import preview_by_spark
from resources.declarations import TableDeclaration
from resources.errors import ExpectationFailed, StreamBusy
from resources.spark.commit_conf import COMMITTED
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions


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
    )
    def asset(config: StreamTableConfig, spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from materialize_stream(stream, config, spark)

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
    before = [_Before.of(spark, table, created=table in created) for table in stream.written]
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
    more: dict[str, Any] = {**done.numbers, **done.run, **{f"failed {name}": n for name, n in done.found.failed.items()}}
    if config.replay or corrections:
        write_corrections(spark, stream.quarantine, corrections)
        replayed = stream.replay(spark).numbers
        more |= {"replayed": -replayed["quarantined"], "replayed into the table": replayed["accepted"]}
    for state, shown in zip(before, (stream.shown, stream.quarantine), strict=True):
        yield result(shown, state.change(spark, stream, more), instance)
    yield from check_results(expectations, key, done.found)


class _Before:
    """A table before the run, which the run's changes are measured against."""

    def __init__(self, table: TableDeclaration, version: int, rows: int) -> None:
        self.table = table
        self._version = version
        self._rows = rows
        self._began = time.monotonic()

    @classmethod
    def of(cls, spark: Spark, table: TableDeclaration, *, created: bool) -> "_Before":
        if created:
            return cls(table, -1, 0)
        version = spark.catalog.version(spark.full_name(table))
        return cls(table, version, spark.count(table, version))

    def change(self, spark: Spark, stream: EventStream, more: Mapping[str, Any]) -> TableChange:
        name = spark.full_name(self.table)
        version = spark.catalog.version(name)
        rows = spark.count(self.table, version)
        history = spark.history(name, version - self._version) if version > self._version else []
        # Other writers may commit meanwhile: our commits carry a mark.
        ours = [c for c in history if c.version == 0 or (c.user_metadata or "").startswith((COMMITTED, stream.name))]
        return TableChange(
            version=version,
            rows=rows,
            added=rows - self._rows,
            versions=sorted(commit.version for commit in ours),
            last=history[0] if history else None,
            seconds=time.monotonic() - self._began,
            preview=preview_by_spark(spark, self.table),
            more=more,
        )
