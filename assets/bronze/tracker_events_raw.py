"""The tracker's events as they came."""

import dagster as dg

from components.stream.record_table import record_table
from components.table_policies import with_freshness
from ingest.records.record_source import RECORD
from resources.declarations import Engine, TableDeclaration

TRACKER_EVENTS_RAW = TableDeclaration(
    "bronze",
    "tracker_events_raw",
    RECORD,
    "Records as they came, each exactly once",
    Engine.SPARK,
    frozenset({"STREAMING UPDATE"}),
)

KAFKA_EVENTS = dg.AssetKey(["kafka", "tracker_events"])
"""The topics, as an asset that others write."""

kafka_events = dg.AssetSpec(
    KAFKA_EVENTS, description="Topics with the tracker's events", group_name="kafka", kinds={"kafka"}
)
tracker_events_raw = next(iter(dg.map_asset_specs(with_freshness, [record_table(TRACKER_EVENTS_RAW, [KAFKA_EVENTS])])))
