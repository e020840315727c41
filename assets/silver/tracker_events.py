"""The assets of the tracker's events in silver, and their expectations as checks."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.silver.tracker_stream import ensure_tables, replay, stream
from assets.silver.tracker_tables import EXPECTATIONS, QUARANTINE, STREAM, TRACKER_EVENTS
from components.expectations.expectation_checks import check_results, check_specs
from components.expectations.validation import validation_result
from components.stream.quarantine_corrections import read_corrections, write_corrections
from components.stream.stream_ledger import STREAM_BATCHES, Account
from components.stream.validated_stream import MAX_FILES
from components.table_asset import TableChange, asset_key, result, step_name, table_spec
from components.table_policies import with_policies
from components.table_preview import preview_by_spark
from resources.declarations import TableDeclaration
from resources.errors import ExpectationFailed, StreamBusy
from resources.spark.spark_engine import COMMITTED, Spark
from resources.spark.streaming_query import StreamOptions


class TrackerConfig(dg.Config):
    """How silver is brought up to date with bronze."""

    max_files: int = Field(default=MAX_FILES, ge=1, description="Files of bronze in one micro-batch at most")
    full_refresh: bool = Field(default=False, description="Rebuild silver from the whole of bronze")
    replay: bool = Field(default=False, description="Then validate again what is in quarantine")
    corrections: str = Field(default="", description="A file of corrected values, one JSON object a line, to replay with")


@dg.multi_asset(
    name=step_name(TRACKER_EVENTS),
    specs=[with_policies(table_spec(table, [asset_key(TRACKER_EVENTS_RAW)])) for table in (TRACKER_EVENTS, QUARANTINE)],
    check_specs=check_specs(EXPECTATIONS, asset_key(TRACKER_EVENTS)),
)
def tracker_events(config: TrackerConfig, spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Validate what is new in bronze, once: into silver, into quarantine, or counted as dropped, late or a duplicate."""
    yield from validated(config, spark)


def validated(
    config: TrackerConfig, spark: Spark, options: StreamOptions | None = None
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Run the stream from bronze, as `tracker_stream.stream` does, and yield its results.

    Raises:
        As `tracker_stream.stream`; BadCorrection.
    """
    corrections = read_corrections(Path(config.corrections)) if config.corrections else []
    created = ensure_tables(spark)
    tables = (TRACKER_EVENTS, QUARANTINE)
    before = [_Before.of(spark, table, created=table in created) for table in tables]
    try:
        done = stream(spark, max_files=config.max_files, full_refresh=config.full_refresh, options=options)
    except StreamBusy:
        if not (config.replay or corrections):
            raise
        # The continuous mode keeps silver up to date; a replay beside it is safe.
        done = Account()
    except ExpectationFailed as error:
        yield from check_results(EXPECTATIONS, asset_key(TRACKER_EVENTS), validation_result(error.counted))
        raise
    more: dict[str, Any] = {**done.numbers, **done.run, **{f"failed {name}": n for name, n in done.found.failed.items()}}
    if config.replay or corrections:
        write_corrections(spark, QUARANTINE, corrections)
        replayed = replay(spark).numbers
        more |= {"replayed": -replayed["quarantined"], "replayed into silver": replayed["accepted"]}
    for state in before:
        yield result(state.table, state.change(spark, more))
    yield from check_results(EXPECTATIONS, asset_key(TRACKER_EVENTS), done.found)


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

    def change(self, spark: Spark, more: Mapping[str, Any]) -> TableChange:
        name = spark.full_name(self.table)
        version = spark.catalog.version(name)
        rows = spark.count(self.table, version)
        history = spark.history(name, version - self._version) if version > self._version else []
        # Other writers may commit meanwhile: our commits carry a mark.
        ours = [c for c in history if c.version == 0 or (c.user_metadata or "").startswith((COMMITTED, STREAM))]
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


stream_batches = table_spec(STREAM_BATCHES, [asset_key(TRACKER_EVENTS)])
"""The ledger of the micro-batches, which the stream writes beside its tables."""
