"""The assets and checks of the project's tables that a job may be of."""

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import INTACT, REPORTED
from ratify_lakehouse.components.checks.check_state import FULL
from ratify_lakehouse.components.strategies.partition_checks import COMPLETE
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.project_tables import declared_tables, sources

IN_FULL = {FULL: "full"}
"""The tags of a run whose checks compare whole tables: in other runs they compare what is new since they passed."""

# One step finds what both of the first say.
_WITHOUT_COMMITS = {INTACT, REPORTED, "data_is_fresh", COMPLETE}


def from_files() -> dg.AssetSelection:
    """Return the bronze tables of landed files."""
    return dg.AssetSelection.assets(*(asset_key(source.table) for source in sources()))


def from_kafka() -> dg.AssetSelection:
    """Return the tables that are made of topics of Kafka, and those that depend on them."""
    return dg.AssetSelection.assets(*declared_tables().from_kafka)


def partitioned() -> dg.AssetSelection:
    """Return the tables with partitions. They follow by their sensors: a job has partitions of one kind."""
    return dg.AssetSelection.assets(*declared_tables().partitioned)


def checks_without_kafka() -> dg.AssetSelection:
    """Return every check of the tables that do not depend on Kafka."""
    of_kafka = dg.AssetSelection.checks_for_assets(*declared_tables().from_kafka)
    return dg.AssetSelection.checks(*declared_tables().checks) - of_kafka


def checks_without_commits() -> dg.AssetSelection:
    """Return the checks of what changes without a commit: files that are missing, and data that is too old."""
    return dg.AssetSelection.checks(*(key for key in declared_tables().checks if key.name in _WITHOUT_COMMITS))
