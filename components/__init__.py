"""The kinds of tables: components that a table's `defs.yaml` names."""

from components.feeds.audit_trail_component import AuditTrail
from components.kafka_events_component import KafkaEvents
from components.landed_files_component import LandedFiles
from components.sql_table_component import SqlTable
from components.stream_table_component import StreamTable
from components.sync_component import Sync

__all__ = ["AuditTrail", "KafkaEvents", "LandedFiles", "SqlTable", "StreamTable", "Sync"]
