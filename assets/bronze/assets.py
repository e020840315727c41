"""The bronze assets: landed files, loaded by DuckDB, one load batch a commit."""

from typing import Any

import dagster as dg
from pydantic import Field

from assets.bronze.ingest import BatchOutcome, Status, batches, load_batch, waiting
from assets.bronze.sources import LANDED_FILES, SOURCES, Source
from assets.tables import Written, asset_key, result, table_spec
from resources.catalog import UnityCatalog
from resources.duckdb import DuckDB
from resources.landing import LandedFile, LandingZone
from resources.spark import Spark

MAX_FILES = 30
MAX_BYTES = 256 * 1024 * 1024


class LoadConfig(dg.Config):
    """Which files to load, and how many a commit."""

    files: list[str] = Field(default=[], description="Paths in the landing zone; empty: all that are waiting")
    max_files: int = Field(default=MAX_FILES, ge=1, description="Files in one load batch at most")
    max_bytes: int = Field(default=MAX_BYTES, ge=1, description="Bytes in one load batch at most")


def landing_key(source: Source) -> dg.AssetKey:
    """Return the key of the landed files that a bronze table is loaded from."""
    return dg.AssetKey(["landing", source.table.name])


def landing_spec(source: Source) -> dg.AssetSpec:
    """Return the landed files as an asset that others make."""
    return dg.AssetSpec(
        landing_key(source),
        description=f"Files {source.pattern} in the landing zone",
        group_name="landing",
        kinds={"csv"},
    )


def bronze_table(source: Source) -> dg.AssetsDefinition:
    """Return the asset that loads a source's files into its bronze table."""

    @dg.multi_asset(name=source.table.name, specs=[table_spec(source.table, [landing_key(source)])])
    def asset(
        context: dg.AssetExecutionContext,
        config: LoadConfig,
        landing: LandingZone,
        spark: Spark,
        duckdb: DuckDB,
        catalog: UnityCatalog,
    ) -> dg.MaterializeResult[Any]:
        spark.ensure_table(LANDED_FILES)
        created = spark.ensure_table(source.table)
        files = _files(config, landing, duckdb, source)
        outcomes = list[BatchOutcome]()
        for number, batch in enumerate(batches(files, config.max_files, config.max_bytes), 1):
            outcome = load_batch(duckdb, landing, source, batch)
            outcomes.append(outcome)
            context.log.info(
                "batch %d (%s): %s", number, outcome.batch_id, ", ".join(f"{outcome.count(s)} {s}" for s in Status)
            )
            _log_refused(context, outcome)
        return result(source.table, _written(source, outcomes, created, duckdb, catalog))

    return asset


def _files(config: LoadConfig, landing: LandingZone, duckdb: DuckDB, source: Source) -> list[LandedFile]:
    if not config.files:
        return waiting(duckdb, landing, source)
    wanted = set(config.files)
    return [file for file in landing.files(source.pattern) if file.path in wanted]


def _log_refused(context: dg.AssetExecutionContext, outcome: BatchOutcome) -> None:
    for file in outcome.files:
        if file.status is not Status.LOADED:
            context.log.warning("%s: %s (%s)", file.path, file.status, file.reason)


def _written(source: Source, outcomes: list[BatchOutcome], created: bool, duckdb: DuckDB, catalog: UnityCatalog) -> Written:
    with duckdb.session() as session:
        rows = session.count(source.table)
    versions = [outcome.version for outcome in outcomes if outcome.version is not None]
    files = [file for outcome in outcomes for file in outcome.files]
    records = [
        dg.TableRecord({"file": f.path, "status": f.status.value, "rows": f.rows, "reason": f.reason})
        for f in files
        if f.status is not Status.LOADED
    ]
    more: dict[str, Any] = {f"files {status}": sum(f.status is status for f in files) for status in Status}
    more["batches"] = dg.MetadataValue.json([outcome.batch_id for outcome in outcomes])
    if records:
        more["files not loaded"] = dg.MetadataValue.table(records)
    return Written(
        version=catalog.version(source.table.full_name(catalog.connection.name)),
        rows=rows,
        added=sum(file.rows for file in files if not file.recovered),
        versions=[*([0] if created else []), *versions],
        more=more,
    )


landed_files = table_spec(LANDED_FILES, [asset_key(source.table) for source in SOURCES])
"""The book of the landing zone, written by every bronze asset beside its own table."""

bronze_assets = [bronze_table(source) for source in SOURCES]
landing_assets = [landing_spec(source) for source in SOURCES]
