"""The jobs: which tables are updated, or checked, together."""

import dagster as dg

from ratify_lakehouse.definitions import table_selections as tables

medallion_job = dg.define_asset_job(
    "medallion",
    # Without Kafka's tables, because Kafka is optional.
    selection=dg.AssetSelection.all() - tables.from_kafka() - tables.partitioned(),
    description="Update every table without partitions that does not depend on Kafka, bronze to gold.",
)

files_job = dg.define_asset_job(
    "files",
    selection=tables.checks_without_commits(),
    description="Check that every data file of every table exists in storage, and that the last new rows are not too old.",
)

full_checks_job = dg.define_asset_job(
    "full_checks",
    selection=tables.checks_without_kafka(),
    tags=tables.IN_FULL,
    description="Check every table that does not depend on Kafka in full: other runs compare what is new since they passed.",
)

JOBS = (medallion_job, files_job, full_checks_job)
