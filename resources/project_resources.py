"""The resources that the tables are made with: the catalog, the engines, Kafka and the landing zone.

Each takes from the environment what is not given here (.env.example has the variables).
"""

from typing import Any

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.landing.landing_zone import LandingZone

_catalog = UnityCatalog()

RESOURCES: dict[str, dg.ConfigurableResource[Any]] = {
    "catalog": _catalog,
    "spark": Spark(catalog=_catalog),
    "duckdb": DuckDB(catalog=_catalog),
    "flink": Flink(catalog=_catalog),
    "kafka": Kafka(),
    "landing": LandingZone(),
}
