"""What becomes of a table whose rows somebody restores, deletes or replaces by hand, and of what reads it."""

from collections.abc import Mapping

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.feeds.audit_trail_component import AuditTrail
from ratify_lakehouse.components.feeds.tenant_tables_component import TenantTables
from ratify_lakehouse.components.feeds.topic_feed_component import TopicFeed
from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.kafka_events_component import KafkaEvents
from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.stream_table_component import StreamTable
from ratify_lakehouse.components.sync_component import Sync
from ratify_lakehouse.components.table_component import TableComponent

Kind = tuple[type[DeclaredComponent], str]
"""A kind of component, with the strategy that it is declared with, if it has such."""

_AS_THE_QUERY = "its next run makes it equal to its query again, and this change lasts until then"
_BY_FEED = "its next run takes the changed rows from the change data feed, as changes of that version"
_AS_IT_IS = "its next run reads the rows that are there then"
_DIFFERENCES = "its next run computes what differs"
_GOES_ON = "its stream continues after the last record it has read"
_NEW_ROWS = "rows that it has stay as they are; new ones are computed from the table as it is then"
_MISSING_PERIODS = "its next run takes periods that it does not have; one that DuckDB loaded is not loaded again"
_APPLIED = "its next run applies the rows that the table has then"

_OWN: Mapping[Kind, str] = {
    (SqlTable, "full"): _AS_THE_QUERY,
    (SqlTable, "incremental"): _AS_THE_QUERY,
    (SqlTable, "partition"): _AS_THE_QUERY,
    (SqlTable, "append"): "its next run appends new rows, and leaves all others as they are",
    (SqlTable, "append_by_period"): _MISSING_PERIODS,
    (SqlTable, "scd2"): "its next run compares its query with the versions that it has now",
    (TenantTables, ""): _AS_THE_QUERY,
    (LandedFiles, ""): "files that it has loaded are not loaded again",
    (KafkaEvents, ""): f"{_GOES_ON}, and reads none again",
    (StreamTable, ""): f"{_GOES_ON}; a run with full_refresh: true computes it from all records",
    (FlinkSql, ""): "its job continues from its own state, and reads no record again",
    (AuditTrail, ""): "its next run appends the changes that it does not have yet, and leaves all others as they are",
}
_RESTORED: Mapping[Kind, str] = {
    (SqlTable, "append"): "its next run continues from that version: rows that its inputs got since are appended again",
    (AuditTrail, ""): "its next run continues from that version: changes that were made since are appended again",
}
_READERS: Mapping[Kind, str] = {
    (SqlTable, "full"): "its next run computes all rows",
    (SqlTable, "incremental"): _DIFFERENCES,
    (SqlTable, "partition"): "partitions whose rows may differ become stale, and its next run computes them",
    (SqlTable, "append"): _NEW_ROWS,
    (SqlTable, "append_by_period"): _NEW_ROWS,
    (SqlTable, "scd2"): "its next run adds versions of the rows that differ",
    (TenantTables, ""): _DIFFERENCES,
    (StreamTable, ""): "its stream begins again with all records, if the table has all that it was computed from",
    (AuditTrail, ""): _BY_FEED,
    (TopicFeed, ""): _BY_FEED,
    (Sync, "append"): "rows that were deleted stay where it has inserted them; if others were changed, its next run fails",
    (Sync, "merge"): "its next run merges the rows that the table has then, and deletes none",
    (Sync, "mirror"): _APPLIED,
    (Sync, "full"): _APPLIED,
    (Sync, "scd2"): _APPLIED,
    (Sync, "cdc"): _APPLIED,
}
_FOLLOWS = (
    "rows that were deleted stay in it; if others were changed, its next run fails, and one with full_refresh: true "
    "computes all of them"
)


def own_effect(table: TableComponent, *, restored: bool) -> str:
    """Return what the next run of a table does after somebody changed its rows.

    Args:
        table: The table.
        restored: Whether they were changed by a RESTORE.
    """
    return (_found(_RESTORED, table) if restored else "") or _found(_OWN, table) or _AS_IT_IS


def reader_effect(reader: DeclaredComponent, table: str) -> str:
    """Return what the next run of a reader does after somebody changed rows of a table, given as schema.table."""
    if isinstance(reader, SqlTable) and reader.driving and str(reader.driving).casefold().endswith(table.casefold()):
        return _FOLLOWS
    return _found(_READERS, reader) or _AS_IT_IS


def _detail(component: DeclaredComponent) -> str:
    return component.strategy if isinstance(component, SqlTable | Sync) else ""


def _found(effects: Mapping[Kind, str], component: DeclaredComponent) -> str:
    # A project may have kinds of its own, most of which extend one of these.
    detail = _detail(component)
    return next((text for (kind, of), text in effects.items() if isinstance(component, kind) and of == detail), "")
