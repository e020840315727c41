"""What all table assets share: their spec and their result."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg

from ratify_lakehouse.components.lineage_graph import COLUMN_LINEAGE, latest_lineage, lineage_graph
from ratify_lakehouse.components.lineage_picture import shown_lineage
from ratify_lakehouse.components.table_preview import (
    DATA_VERSION,
    PREVIEW,
    known_preview,
    preview_by_duckdb,
    preview_by_spark,
)
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.commit_history import MAINTENANCE, Commit
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.settings import catalog_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R")

COMMITS = "commits"
"""Metadata key: what a materialization committed. `versions`: the Delta versions; all others are external commits. For a
table of landed files also `batches`, its load batches, and `rows`, the rows that the table has of them."""

SIDE_BY_SIDE = "ratify/side_by_side"
"""Tag of a step that waits for a server that computes a table; its value is the engine, such as "spark". Such a step may run
beside others, in a thread with a Spark session of its own."""

_DRAWN_COLUMNS = 100
"""Columns of a table whose lineage its page draws: each materialization keeps the picture. `ratify lineage` draws all."""
_MEDALS = {"bronze", "silver", "gold"}
"""The schemas that the UI has an icon for."""
_MOST_COMMITS_OF_MAINTENANCE = 1000
"""A compaction makes one for each file that it writes."""


def asset_key(declaration: TableDeclaration) -> dg.AssetKey:
    """Return the asset key of a table: its full name."""
    return dg.AssetKey(declaration.key_path(catalog_name()))


def step_name(declaration: TableDeclaration) -> str:
    """Return the name of the step that materializes a table: tables of different schemas may have one name."""
    return f"{declaration.layer}__{declaration.name}"


def table_spec(declaration: TableDeclaration, deps: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    """Return the spec of a table's asset; orchestration adds the policies."""
    return dg.AssetSpec(
        key=asset_key(declaration),
        deps=deps,
        description=declaration.comment,
        group_name=declaration.layer,
        kinds={*table_kinds(declaration.writer), *_MEDALS.intersection([declaration.layer])},
        owners=[f"team:{declaration.owner}"],
        tags=dict(declaration.tags),
        metadata={
            "dagster/table_name": declaration.full_name(catalog_name()),
            "dagster/column_schema": column_schema(declaration),
        },
    )


def table_kinds(engine: str) -> set[str]:
    """Return the kinds of a Delta table that an engine writes: those that the UI has an icon for."""
    return {engine.lower(), "deltalake"}


def column_schema(declaration: TableDeclaration) -> dg.TableSchema:
    """Return the columns as the UI shows them."""
    personal = declaration.personal
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.type or "not known yet",
                description=_described(column),
                tags={"pii": ""} if column.name in personal else None,
            )
            for column in declaration.columns
        ]
    )


def _described(column: Column) -> str | None:
    """The comment, and the column's lineage, which the open-source UI stores but does not draw."""
    origin = f"from {', '.join(column.sources)}" if column.sources else ""
    return "; ".join(filter(None, (column.comment, origin))) or None


def column_lineage(declaration: TableDeclaration) -> dg.TableColumnLineage:
    """Return the columns of other tables from which each column is computed."""
    catalog = catalog_name()

    def dep(source: str) -> dg.TableColumnDep:
        layer, table, column = source.split(".", 2)
        return dg.TableColumnDep(dg.AssetKey([catalog, layer, table]), column)

    return dg.TableColumnLineage(
        {column.name: [dep(source) for source in column.sources] for column in declaration.columns if column.sources}
    )


@dataclass(frozen=True)
class TableChange:
    """What a materialization did to its table.

    Attributes:
        version: The table's version now.
        rows: Rows in the table now.
        added: Rows added less rows deleted.
        versions: Versions that this materialization committed.
        last: The table's last commit, whoever made it.
        seconds: How long the materialization took.
        preview: Some rows.
        landings: How often content landed that the table had already: it adds no rows, but is the latest again.
        rows_version: See `rows_version`; empty: the version stands for it.
    """

    version: int
    rows: int
    added: int
    versions: Sequence[int]
    last: Commit | None = None
    seconds: float | None = None
    preview: dg.TableMetadataValue | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    landings: int = 0
    rows_version: str = ""

    @property
    def data_version(self) -> str:
        """What changes if and only if tables that are made of this one have to be computed again."""
        version = self.rows_version or str(self.version)
        return f"{version}.{self.landings}" if self.landings else version


def rows_version(spark: Spark, full_name: str, version: int) -> str:
    """Return which table it is, and the newest version up to one of its versions that was no mere maintenance of its files.

    Where all of those that the log still has were, it is the oldest of them. A table that is dropped and created again has
    another id, whose first part stands for it.
    """
    table_id, newest = spark.catalog.table(full_name).table_id or "", version
    for commit in spark.recent_commits(full_name, _MOST_COMMITS_OF_MAINTENANCE):
        if commit.version <= version:
            newest = commit.version
            if commit.operation not in MAINTENANCE:
                break
    return f"{table_id.partition('-')[0]}.{newest}"


def result(
    declaration: TableDeclaration, change: TableChange, instance: dg.DagsterInstance | None = None
) -> dg.MaterializeResult[Any]:
    """Return the materialization of a table, for Dagster.

    Args:
        declaration: The table.
        change: What was done to it.
        instance: Knows the lineage of the tables that it is made of; outside of a run it has to be given.
    """
    metadata: dict[str, Any] = {
        "dagster/row_count": change.rows,
        "dagster/column_schema": column_schema(declaration),
        COLUMN_LINEAGE: column_lineage(declaration),
        "Delta version": change.version,
        "engine": declaration.writer.value,
        "rows added": change.added,
        **change.more,
        COMMITS: dg.MetadataValue.json({"versions": list(change.versions)}),
    }
    if last := change.last:
        metadata["last commit"] = f"version {last.version}: {last.operation} by {last.engine}"
        metadata["last commit at"] = dg.MetadataValue.timestamp(last.timestamp)
    if change.seconds is not None:
        metadata["seconds"] = round(change.seconds, 3)
    if lineage := _drawn_lineage(declaration, instance):
        metadata["column lineage"] = lineage
    if change.preview is not None:
        metadata[PREVIEW] = change.preview
    return dg.MaterializeResult(
        asset_key=asset_key(declaration), metadata=metadata, data_version=dg.DataVersion(change.data_version)
    )


def data_version_tags(made: dg.MaterializeResult[Any]) -> dict[str, str]:
    """Return the tags by which a materialization that a step reports itself has the data version of a result."""
    if made.data_version is None:
        return {}
    return {DATA_VERSION: made.data_version.value, "dagster/data_version_is_user_provided": "true"}


def as_event(made: dg.MaterializeResult[Any], partition: str | None = None) -> dg.AssetMaterialization:
    """Return the event of a result that a step reports itself."""
    if made.asset_key is None:
        raise ValueError("a result without an asset")
    return dg.AssetMaterialization(made.asset_key, metadata=made.metadata, partition=partition, tags=data_version_tags(made))


def chosen_results(results: Iterable[R]) -> Iterator[R]:
    """Yield the results of a step that writes a table and its quarantine, whichever of them its run was asked for.

    Dagster takes no result of an asset that was not chosen; its page gets the materialization all the same.
    """
    context = dg.AssetExecutionContext.get()
    for result in results:
        if isinstance(result, dg.MaterializeResult) and result.asset_key not in context.selected_asset_keys:
            context.log_event(as_event(result))
        else:
            yield result


def _drawn_lineage(declaration: TableDeclaration, instance: dg.DagsterInstance | None) -> dg.MarkdownMetadataValue | None:
    """The picture of the column lineage, over all levels; None where no column comes from another table."""
    own = column_lineage(declaration)
    if not own.deps_by_column:
        return None
    key = asset_key(declaration)
    reported = latest_lineage(instance or dg.AssetExecutionContext.get().instance)

    def lineage_of(table: dg.AssetKey) -> dg.TableColumnLineage | None:
        return own if table == key else reported(table)

    return shown_lineage(lineage_graph(key, declaration.column_names, lineage_of, _DRAWN_COLUMNS))


def materialize_to_match(
    spark: Spark, declaration: TableDeclaration, read: Callable[[], "DataFrame"], after: int | None = None, **more: Any
) -> dg.MaterializeResult[Any]:
    """Create a table where it is missing, make it equal to a DataFrame by a MERGE, and return its materialization.

    Args:
        spark: The session.
        declaration: The table, with keys.
        read: See `Spark.merge_to_match`.
        after: Likewise.
        more: Further metadata.

    Raises:
        As Spark.merge_to_match.
    """
    began = time.monotonic()
    created = spark.ensure_table(declaration)
    return materialize_by(spark, declaration, created, began, spark.merge_to_match(declaration, read, after), read(), **more)


def materialize_by(
    spark: Spark,
    declaration: TableDeclaration,
    created: bool,
    began: float,
    wrote: WriteResult,
    computed: "DataFrame | DuckDBSession | None",
    **more: Any,
) -> dg.MaterializeResult[Any]:
    """Return the materialization of a table that an engine has written.

    Args:
        spark: The session; it knows the table's commits.
        declaration: The table.
        created: Whether it was created before.
        began: When that was begun, by the monotonic clock.
        wrote: What the write did.
        computed: Rows that the table has now, for the preview; or DuckDB, or None for Spark, which reads the table's.
        more: Further metadata.
    """
    full_name = spark.full_name(declaration)
    by_duckdb = isinstance(computed, DuckDBSession)
    of_rows = rows_version(spark, full_name, wrote.version)
    preview = known_preview(asset_key(declaration), declaration, wrote.rows, of_rows)
    if preview is None:
        preview = preview_by_duckdb(computed, declaration) if by_duckdb else preview_by_spark(spark, declaration, computed)
    change = TableChange(
        version=wrote.version,
        rows_version=of_rows,
        rows=wrote.rows,
        added=wrote.inserted - wrote.deleted,
        versions=[*([0] if created else []), *wrote.versions],
        last=wrote.commit or next(iter(spark.recent_commits(full_name, 1))),
        seconds=time.monotonic() - began,
        preview=preview,
        more={
            "rows inserted": wrote.inserted,
            "rows updated": wrote.updated,
            "rows deleted": wrote.deleted,
            **more,
        },
    )
    return result(declaration, change)
