"""Whether a sync can run: what it needs of the catalog, the source and the destination, each tried. Nothing is written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ratify_lakehouse.components.syncs.source_rows import read_source
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncEngine
from ratify_lakehouse.components.syncs.sync_destination import find_destination
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import RatifyError, TableMissing


@dataclass(frozen=True)
class ConnectionStep:
    """Something that a sync needs.

    Attributes:
        name: What was tried.
        found: What was found.
        lacks: What is missing, and what to do; empty if nothing is.
    """

    name: str
    found: str = ""
    lacks: str = ""


def connection_steps(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> Iterator[ConnectionStep]:
    """Try what a sync needs, one after the other, up to the first that it lacks."""
    if sync.engine is not SyncEngine.SPARK:
        named = "the warehouse" if sync.engine is SyncEngine.WAREHOUSE else "the catalog"
        planned = f"{named}, the source and the destination", lambda: _planned(spark, duckdb, sync)
        # The workspace does not say which grants its warehouse needs.
        by_duckdb = sync.engine is SyncEngine.DUCKDB
        written = [("the destination can be written", lambda: _destination(spark, sync))] if by_duckdb else []
        yield from _tried((planned, *written))
        return
    steps = (
        ("the catalog answers", lambda: _catalog(spark)),
        ("the source can be read", lambda: _source(spark, duckdb, sync)),
        ("the destination can be written", lambda: _destination(spark, sync)),
        ("the columns fit", lambda: _columns(spark, duckdb, sync)),
    )
    yield from _tried(steps)


def _tried(steps: Sequence[tuple[str, Callable[[], str]]]) -> Iterator[ConnectionStep]:
    for name, tried in steps:
        try:
            yield ConnectionStep(name, tried())
        except RatifyError as error:
            yield ConnectionStep(name, lacks=str(error))
            return


def _planned(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> str:
    counts, _ = pass_of(spark, duckdb, sync).plan()
    return f"{counts.read} rows fit, of which a run would write {counts.inserted + counts.updated}"


def _catalog(spark: Spark) -> str:
    spark.catalog.default_schema()
    return f"{spark.catalog.connection.host} as {spark.catalog.principal() or 'a principal that it does not name'}"


def _source(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> str:
    catalog, query = spark.catalog, sync.source.query
    for name in query.inputs if query else ():
        catalog.table_credentials(name.full_name(catalog.connection.name), "READ")
    rows = read_source(spark, duckdb, sync, {})
    versions = ", ".join(f"{name} at version {read.version}" for name, read in rows.inputs.items() if read.table_id)
    return f"{len(rows.types)} columns{f' of {versions}' if versions else ''}"


def _destination(spark: Spark, sync: SyncDeclaration) -> str:
    full_name = sync.destination.full_name(spark.catalog.connection.name)
    try:
        version = spark.catalog.version(full_name)
    except TableMissing:
        if sync.create_if_missing:
            return f"{full_name} does not exist yet: the first run creates it"
        raise
    spark.catalog.table_credentials(full_name, "READ_WRITE")
    return f"{full_name} at version {version}"


def _columns(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> str:
    found = find_destination(spark, sync, read_source(spark, duckdb, sync, {}).types)
    others = f"; not written: {', '.join(found.others)}" if found.others else ""
    return f"{', '.join(found.table.column_names)}{others}"
