"""Ratify: a lakehouse of several engines for Dagster, in which Unity Catalog ratifies every commit.

The kinds of tables are attributes of this package, as `type: ratify_lakehouse.SqlTable` in a `defs.yaml` names them. Each is
imported when it is asked for: the servers and commands of this package start without Dagster.
"""

from importlib import import_module
from typing import Any

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


def __dir__() -> list[str]:
    return [*globals(), *KINDS]


def __getattr__(name: str) -> Any:
    if name not in KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.components.{KINDS[name]}"), name)
