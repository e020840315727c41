"""Ratify: a lakehouse of several engines for Dagster, in which Unity Catalog ratifies every commit.

`table` opens a table to read and to append to, in any Python program; `RatifyIOManager` does so for Dagster's assets. The
kinds of tables are attributes of this package, too, as `type: ratify_lakehouse.SqlTable` in a `defs.yaml` names them. Each
is imported when it is asked for: the servers and commands of this package start without Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratify_lakehouse.definitions.table_io_manager import RatifyIOManager as RatifyIOManager
    from ratify_lakehouse.engines.duckdb.python_tables import PythonTable as PythonTable
    from ratify_lakehouse.engines.duckdb.python_tables import table as table

KINDS = {
    "AuditTrail": "feeds.audit_trail_component",
    "FlinkSql": "flink_sql_component",
    "KafkaEvents": "kafka_events_component",
    "LandedFiles": "landed_files_component",
    "SqlTable": "sql_table_component",
    "StreamTable": "stream_table_component",
    "Sync": "sync_component",
    "TenantTables": "feeds.tenant_tables_component",
    "TopicFeed": "feeds.topic_feed_component",
}
"""The kinds, and their modules in `components`."""

TABLES = {
    "PythonTable": "engines.duckdb.python_tables",
    "RatifyIOManager": "definitions.table_io_manager",
    "table": "engines.duckdb.python_tables",
}
"""Tables for Python programs, and the modules that they are in."""


def __dir__() -> list[str]:
    return [*globals(), *KINDS, *TABLES]


def __getattr__(name: str) -> Any:
    modules = TABLES | {kind: f"components.{module}" for kind, module in KINDS.items()}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{modules[name]}"), name)
