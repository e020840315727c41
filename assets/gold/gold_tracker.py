"""The gold tables of the tracker's events."""

from pathlib import Path

import dagster as dg

from assets.silver.tracker_tables import TRACKER_EVENTS
from components.table_asset import spark_table
from components.table_policies import with_policies
from resources.declarations import Column, Engine, TableDeclaration

_SQL = Path(__file__).parent
MERGE = frozenset({"MERGE"})


def _events(*columns: str) -> tuple[str, ...]:
    return tuple(f"silver.tracker_events.{column}" for column in columns)


HEART_RATE_MINUTE = TableDeclaration(
    layer="gold",
    name="heart_rate_minute",
    columns=(
        Column("minute_utc", "timestamp", "Its start", _events("time")),
        Column("model", "string", "Of the tracker; `unknown` if it is missing", _events("model")),
        Column("events", "bigint", sources=_events("user_id", "time")),
        Column("users", "bigint", "Different users", _events("user_id")),
        Column("mean_heart_bpm", "double", "Heartbeats a minute", _events("heart_bpm")),
        Column("min_heart_bpm", "int", "Heartbeats a minute", _events("heart_bpm")),
        Column("max_heart_bpm", "int", "Heartbeats a minute", _events("heart_bpm")),
    ),
    comment="Heart rates by minute and model of tracker",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("minute_utc", "model"),
)

DEVICE_DAILY = TableDeclaration(
    layer="gold",
    name="device_daily",
    columns=(
        Column("day_utc", "date", sources=_events("time")),
        Column("model", "string", "Of the tracker; `unknown` if it is missing", _events("model")),
        Column("events", "bigint", sources=_events("user_id", "time")),
        Column("users", "bigint", "Different users", _events("user_id")),
        Column("versions", "bigint", "Different versions of the software", _events("version")),
        Column("kcal", "bigint", "Kilocalories", _events("kcal")),
        Column("mean_heart_bpm", "double", "Heartbeats a minute", _events("heart_bpm")),
        Column("last_event_at", "timestamp", "Time of the last event (UTC)", _events("time")),
    ),
    comment="A day of each model of tracker: who used it, and what it measured",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("day_utc", "model"),
)

tracker_gold_assets = [
    *dg.map_asset_specs(
        with_policies,
        [
            spark_table(HEART_RATE_MINUTE, _SQL / "heart_rate_minute.sql", {"events": TRACKER_EVENTS}),
            spark_table(DEVICE_DAILY, _SQL / "device_daily.sql", {"events": TRACKER_EVENTS}),
        ],
    )
]
