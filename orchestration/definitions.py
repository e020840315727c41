"""The one entry point: every asset, check, job, schedule, sensor and resource."""

import dagster as dg

from assets.bronze.landed_tables import bronze_assets, landed_files, landing_assets
from assets.bronze.tracker_events_raw import kafka_events, tracker_events_raw
from assets.cross_engine.proof_assets import cross_engine_assets, steps_ledger
from assets.gold.gold_flights import gold_assets
from assets.gold.gold_tracker import tracker_gold_assets
from assets.silver.silver_flights import silver_assets
from assets.silver.tracker_events import stream_batches, tracker_events
from assets.table_checks import all_checks
from components.table_policies import with_layer_policies
from orchestration.automation_sensor import automation_sensor
from orchestration.jobs import (
    cross_engine_proof,
    events_job,
    files_job,
    full_checks_job,
    hourly,
    ingest_job,
    medallion_job,
    nightly,
    weekly,
)
from orchestration.project_tables import declared_tables
from orchestration.sensors.kafka_lag_sensor import tracker_events_sensor
from orchestration.sensors.landed_files_sensor import landed_files_sensor
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.flink.flink_engine import Flink
from resources.kafka.kafka_client import Kafka
from resources.landing.landing_zone import LandingZone
from resources.spark.spark_engine import Spark

catalog = UnityCatalog()

tables = dg.map_asset_specs(
    with_layer_policies,
    [*bronze_assets, tracker_events_raw, *silver_assets, tracker_events, *gold_assets, *tracker_gold_assets],
)

defs = dg.Definitions.merge(
    declared_tables().definitions,
    dg.Definitions(
        assets=[*landing_assets, kafka_events, *tables, landed_files, stream_batches, *cross_engine_assets, steps_ledger],
        asset_checks=all_checks,
        jobs=[cross_engine_proof, events_job, files_job, full_checks_job, ingest_job, medallion_job],
        schedules=[hourly, nightly, weekly],
        sensors=[landed_files_sensor, tracker_events_sensor, automation_sensor],
        resources={
            "catalog": catalog,
            "spark": Spark(catalog=catalog),
            "duckdb": DuckDB(catalog=catalog),
            "flink": Flink(catalog=catalog),
            "kafka": Kafka(),
            "landing": LandingZone(),
        },
        # Steps wait for Spark's server and for DuckDB's threads, both outside of Python: a process for each step would only
        # cost its start, several seconds, and a Spark session of its own.
        executor=dg.in_process_executor,
    ),
)
