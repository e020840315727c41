"""The kinds of tables and topics: components that a `defs.yaml` names."""

from components.feeds.audit_trail_component import AuditTrail
from components.feeds.tenant_tables_component import TenantTables
from components.feeds.topic_feed_component import TopicFeed
from components.flink_sql_component import FlinkSql
from components.kafka_events_component import KafkaEvents
from components.landed_files_component import LandedFiles
from components.sql_table_component import SqlTable
from components.stream_table_component import StreamTable
from components.sync_component import Sync

__all__ = [
    "AuditTrail",
    "FlinkSql",
    "KafkaEvents",
    "LandedFiles",
    "SqlTable",
    "StreamTable",
    "Sync",
    "TenantTables",
    "TopicFeed",
]
