"""The resources and the executor of both code locations."""

from typing import Any

import dagster as dg

from orchestration.side_by_side import side_by_side_executor
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.flink.flink_engine import Flink
from resources.kafka.kafka_client import Kafka
from resources.landing.landing_zone import LandingZone
from resources.spark.spark_engine import Spark

_catalog = UnityCatalog()

RESOURCES: dict[str, dg.ConfigurableResource[Any]] = {
    "catalog": _catalog,
    "spark": Spark(catalog=_catalog),
    "duckdb": DuckDB(catalog=_catalog),
    "flink": Flink(catalog=_catalog),
    "kafka": Kafka(),
    "landing": LandingZone(),
}

EXECUTOR = side_by_side_executor
