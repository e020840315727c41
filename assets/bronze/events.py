"""The tracker's events as Kafka had them."""

from resources.history import Engine
from resources.tables import Column, TableDeclaration

TRACKER_EVENTS_RAW = TableDeclaration(
    layer="bronze",
    name="tracker_events_raw",
    columns=(
        Column("key", "binary"),
        Column("value", "binary"),
        Column("topic", "string"),
        Column("partition", "int"),
        Column("offset", "bigint"),
        Column("timestamp", "timestamp", "Kafka's timestamp of the record"),
        Column("timestamp_type", "int", "0: when the producer made it; 1: when the broker got it"),
        Column("headers", "array<struct<key:string,value:binary>>"),
    ),
    comment="Records of the tracker's topics as they came, each once",
    writer=Engine.SPARK,
    operations=frozenset({"STREAMING UPDATE"}),
)
