"""The sensors of the project's tables."""

from collections.abc import Sequence

import dagster as dg

from ratify_lakehouse.definitions.automation_sensor import automation_sensor
from ratify_lakehouse.definitions.project_tables import declared_tables, sources
from ratify_lakehouse.definitions.sensors.kafka_lag_sensor import flink_lag_sensor, kafka_lag_sensor
from ratify_lakehouse.definitions.sensors.landed_files_sensor import landed_files_sensor
from ratify_lakehouse.definitions.sensors.whole_table_sensor import whole_assets, whole_table_sensor


def table_sensors() -> Sequence[dg.SensorDefinition]:
    """Return them: of landed files, of each table that reads Kafka, of conditions, of each table with partitions."""
    return [
        *([landed_files_sensor] if sources() else []),
        *map(kafka_lag_sensor, declared_tables().record_tables),
        *map(flink_lag_sensor, declared_tables().flink_tables),
        automation_sensor,
        *map(whole_table_sensor, whole_assets()),
    ]
