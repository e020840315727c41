"""Bronze tables of landed files: the asset that loads a source's files by DuckDB, one load batch a commit."""

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.row_flow import row_flow
from ratify_lakehouse.components.table_asset import TableChange, asset_key, result, rows_version, step_name, table_spec
from ratify_lakehouse.components.table_preview import preview_by_duckdb
from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.file_source import Format, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.ledger.ledger_access import copy_commits
from ratify_lakehouse.ingest.ledger.ledger_queries import newest_entries, repeats, totals, waiting
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.file_batches import MAX_BYTES, MAX_FILES, batches
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table, present_table
from ratify_lakehouse.ingest.load.load_metrics import LoadedBatch, ledger_numbers, numbers
from ratify_lakehouse.ingest.load.post_load_actions import apply_post_load_actions, moved_to
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.settings import Settings

_NEWEST_FILES = 20
_KINDS: Mapping[Format | None, str] = {Format.CSV: "csv", Format.JSONL: "json", Format.PARQUET: "parquet"}
"""Kinds that the UI has an icon for, by the format; files of several formats are just files."""


class LoadConfig(dg.Config):
    """Which files to load, and how many a commit."""

    files: list[str] = Field(default=[], description="Paths in the landing zone; empty: all waiting files")
    max_files: int = Field(default=MAX_FILES, ge=1, description="Files in one load batch at most")
    max_bytes: int = Field(default=MAX_BYTES, ge=1, description="Bytes in one load batch at most")


def landing_key(source: Source) -> dg.AssetKey:
    """Return the key of the landed files that a bronze table is loaded from."""
    return dg.AssetKey(["landing", source.table.layer, source.table.name])


def landing_spec(source: Source) -> dg.AssetSpec:
    """Return the landed files as an asset that others write."""
    return dg.AssetSpec(
        landing_key(source),
        description=f"Files {source.pattern} in the landing zone",
        group_name="landing",
        kinds={_KINDS.get(source.format_of(source.pattern), "file")},
    )


def bronze_table(source: Source) -> dg.AssetsDefinition:
    """Return the asset that loads a source's files into its bronze table."""

    @dg.multi_asset(name=step_name(source.table), specs=[table_spec(source.table, [landing_key(source)])])
    @in_one_line(source.table_name, lambda: bool(source.table.personal))
    def asset(
        context: dg.AssetExecutionContext,
        config: LoadConfig,
        landing: LandingZone,
        spark: Spark,
        duckdb: DuckDB,
    ) -> dg.MaterializeResult[Any]:
        began = time.monotonic()
        spark.ensure_table(LANDED_FILES)
        files = _files(config, landing, duckdb, source)
        created = ensure_landed_table(spark, duckdb, landing, source, files)
        loaded = _load(context, config, landing, duckdb, source, files)
        copy_commits(duckdb, spark.full_name(source.table))
        _observe_ledger(context, landing, duckdb, source)
        change = _change(source, loaded, created, spark, duckdb)
        with duckdb.session() as session:
            present = present_table(session, source)
            change = replace(
                change,
                landings=repeats(session, source),
                preview=preview_by_duckdb(session, present),
                seconds=time.monotonic() - began,
                more={**change.more, "newest files": _newest_files(session, source)},
            )
        return result(present, change)

    return asset


def _newest_files(session: DuckDBSession, source: Source) -> dg.TableMetadataValue:
    """The newest entries of the table in the ledger."""
    columns = ("file", "status", "rows", "version", "reason", "moved to")
    options = Settings().discovery
    rows = (
        (
            entry.path,
            entry.status.value,
            entry.rows,
            entry.version,
            entry.reason,
            moved_to(options, entry.status, entry.path),
        )
        for entry in newest_entries(session, source, _NEWEST_FILES)
    )
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        dg.TableSchema([dg.TableColumn(name) for name in columns]),
    )


def _files(config: LoadConfig, landing: LandingZone, duckdb: DuckDB, source: Source) -> list[LandedFile]:
    return landing.look(config.files) if config.files else waiting(duckdb, landing, source)


def _load(
    context: dg.AssetExecutionContext,
    config: LoadConfig,
    landing: LandingZone,
    duckdb: DuckDB,
    source: Source,
    files: list[LandedFile],
) -> list[LoadedBatch]:
    loaded, done = list[LoadedBatch](), 0
    options = Settings().discovery
    for number, batch in enumerate(batches(files, config.max_files, config.max_bytes), 1):
        began = time.monotonic()
        outcome = load_batch(duckdb, landing, source, batch, more_follow=True)
        loaded.append(LoadedBatch(outcome, dt.datetime.now(dt.UTC), time.monotonic() - began))
        done += len(batch)
        context.log.info(loaded[-1].log_line(number, done, len(files)))
        for file in outcome.files:
            if file.status is not Status.LOADED:
                place = moved_to(options, file.status, file.path)
                shown = f"; moved to {place}: correct it, or `ratify accept {file.path}`" if place else ""
                context.log.warning("%s: %s (%s)%s", file.path, file.status, file.reason, shown)
        if moved := apply_post_load_actions(landing, options, source, outcome):
            context.log.info("post-load actions: %s", dict(moved))
    return loaded


def _observe_ledger(context: dg.AssetExecutionContext, landing: LandingZone, duckdb: DuckDB, source: Source) -> None:
    """Report the ledger's sums as an observation: it has no materializations, because every bronze asset writes it."""
    files = waiting(duckdb, landing, source)
    with duckdb.session() as session:
        sums = totals(session)
    metadata = ledger_numbers(sums, source.table_name, files, dt.datetime.now(dt.UTC))
    context.log_event(dg.AssetObservation(asset_key=asset_key(LANDED_FILES), metadata=metadata))


def _change(source: Source, loaded: list[LoadedBatch], created: bool, spark: Spark, duckdb: DuckDB) -> TableChange:
    # Other runs may load meanwhile: the rows are those of this version, by the log.
    log = duckdb.log(spark.full_name(source.table))
    snapshot = log.refresh()
    in_files = [file.rows for file in log.files(snapshot)]
    known = [rows for rows in in_files if rows is not None]
    outcomes = [batch.outcome for batch in loaded]
    files = [file for outcome in outcomes for file in outcome.files]
    options = Settings().discovery
    records = [
        dg.TableRecord(
            {
                "file": f.path,
                "status": f.status.value,
                "rows": f.rows,
                "reason": f.reason,
                "moved to": moved_to(options, f.status, f.path),
            }
        )
        for f in files
        if f.status is not Status.LOADED
    ]
    rows, dropped = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("rows", "dropped"))
    more: dict[str, Any] = {**row_flow(rows + dropped, rows), **numbers(loaded)}
    if records:
        more["files not loaded"] = dg.MetadataValue.table(records)
    return TableChange(
        version=snapshot.version,
        rows_version=rows_version(spark, snapshot.full_name, snapshot.version),
        rows=sum(known) if len(known) == len(in_files) else spark.count(source.table, snapshot.version),
        added=sum(outcome.added for outcome in outcomes),
        versions=[*([0] if created else []), *(version for outcome in outcomes for version in outcome.versions)],
        last=commit_from_actions(snapshot.version, log.actions(snapshot.version)),
        more=more,
    )
