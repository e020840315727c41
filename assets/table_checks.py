"""Which checks the tracker's tables have."""

import dagster as dg

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.gold.gold_tracker import DEVICE_DAILY, HEART_RATE_MINUTE
from assets.silver.tracker_tables import QUARANTINE, TRACKER_EVENTS, TRACKER_RECONCILIATION
from components.checks.check_definitions import files_check, history_checks, offsets_check, reconciliation_check
from components.checks.reconciliation import records_reconciled

offsets_once = offsets_check(TRACKER_EVENTS_RAW)
events_reconciled = reconciliation_check(
    TRACKER_RECONCILIATION,
    "records_reconciled",
    records_reconciled,
    "Records read = silver + dropped + quarantined + duplicates + late, by the tables and the ledger.",
)

FROM_KAFKA = (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)
"""Every table from Kafka's records, bronze to gold."""

all_checks: list[dg.AssetChecksDefinition] = [
    *(check for declaration in FROM_KAFKA for check in (files_check(declaration), history_checks(declaration))),
    offsets_once,
    events_reconciled,
]
