"""Tables of records that a test declares, as a `defs.yaml` would."""

from pathlib import Path
from typing import Any

from ratify_lakehouse.components.kafka_events_component import KafkaEvents
from ratify_lakehouse.components.stream.record_table import RecordTable


def declared_events(name: str, *topics: str, **attributes: Any) -> RecordTable:
    """A table of records in bronze, of the kind KafkaEvents."""
    component = KafkaEvents(description="Records of a test", topics=list(topics), **attributes)
    component.place(Path("assets") / "bronze" / name)
    return component.table
