"""The tracker's tables, as the project declares them."""

import re
from collections.abc import Sequence

import dagster as dg

from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import declared_tables, event_stream, record_tables

(RECORDS,) = record_tables("bronze.tracker_events_raw")
STREAM = event_stream("silver.tracker_events")

TRACKER_EVENTS_RAW = RECORDS.declaration
TRACKER_EVENTS, QUARANTINE = STREAM.written
EXPECTATIONS = STREAM.expectations
UNIQUE = "one_row_for_each_key"

_KEYS = declared_tables().with_dependents([asset_key(TRACKER_EVENTS_RAW)])
_GOLD = {key.path[-1]: declared_tables().declarations[key] for key in _KEYS if key.path[1] == "gold"}
HEART_RATE_MINUTE, DEVICE_DAILY = _GOLD["heart_rate_minute"], _GOLD["device_daily"]

AVRO_SCHEMA = re.findall(r"from_avro\(\s*\w+,\s*'(.*?)',\s*map", STREAM.query.text, re.DOTALL)[0]
"""The schema of a record in Avro, which the query decodes."""


def refined_assets() -> Sequence[dg.AssetsDefinition]:
    """The assets of silver and gold."""
    made = (asset for asset in declared_tables().definitions.assets or () if isinstance(asset, dg.AssetsDefinition))
    return [asset for asset in made if set(_KEYS[1:]).intersection(asset.keys)]


def checks_of(*tables: TableDeclaration) -> Sequence[dg.AssetsDefinition]:
    """The checks of tables, but for their expectations."""
    keys = {asset_key(table) for table in tables}
    checks = (check for check in declared_tables().definitions.asset_checks or () if isinstance(check, dg.AssetsDefinition))
    return [check for check in checks if keys.intersection(key.asset_key for key in check.check_keys)]
