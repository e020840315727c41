"""What an asset page shows of a table's rows: a few of them, without the columns that hold personal data."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.spark_sql import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREVIEW = "preview"
"""Metadata key of a materialization."""
DATA_VERSION = "dagster/data_version"
"""Tag of a materialization."""
PREVIEW_ROWS = 5
_CHARACTERS = 100


def known_preview(key: dg.AssetKey, table: TableDeclaration, rows: int, rows_version: str) -> dg.TableMetadataValue | None:
    """Return the preview of a table without reading it; None where that is not known.

    Args:
        key: The table's asset.
        table: The table.
        rows: How many it has.
        rows_version: Its data version: where the last materialization has the same, its preview is right still.
    """
    if not rows:
        return _preview(table, [])
    try:
        last = dg.AssetExecutionContext.get().instance.get_latest_materialization_event(key)
    except dg.DagsterInvariantViolationError:
        # Outside of a run.
        return None
    made = last.asset_materialization if last else None
    shown = made.metadata.get(PREVIEW) if made and (made.tags or {}).get(DATA_VERSION) == rows_version else None
    if not isinstance(shown, dg.TableMetadataValue):
        return None
    # A column may have personal data by what is declared now.
    return shown if [column.name for column in shown.schema.columns] == list(table.shown_columns) else None


def preview_by_spark(spark: Spark, table: TableDeclaration, computed: "DataFrame | None" = None) -> dg.TableMetadataValue:
    """Return a few rows of a table, read by Spark: of those that were computed for it, if there are any."""
    columns = [readable(name, table.column_types.get(name, "")) for name in table.shown_columns]
    if not columns:
        return _preview(table, [])
    records = spark.rows(computed.selectExpr(*columns).limit(PREVIEW_ROWS)) if computed is not None else []
    return _preview(table, records or spark.rows(spark.table(table).selectExpr(*columns).limit(PREVIEW_ROWS)))


def preview_by_duckdb(session: DuckDBSession, table: TableDeclaration) -> dg.TableMetadataValue:
    """Return a few rows of a table, read by DuckDB."""
    columns = ", ".join(map(identifier, table.shown_columns))
    if not columns:
        return _preview(table, [])
    return _preview(table, session.records(f"SELECT {columns} FROM {attached(table.table_name)} LIMIT {PREVIEW_ROWS}"))


def _preview(table: TableDeclaration, records: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    return rows_table(records, table.shown_columns)


def rows_table(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> dg.TableMetadataValue:
    """Return rows as a table of a page, which escapes their values; long ones are cut."""
    names = list(columns)
    records = [dg.TableRecord({name: _shown(row.get(name)) for name in names}) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(name) for name in names]))


def _shown(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
