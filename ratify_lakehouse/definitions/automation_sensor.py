"""The sensor that requests what the automation conditions of tables and checks ask for."""

import dagster as dg

automation_sensor = dg.AutomationConditionSensorDefinition(
    "automation",
    target=dg.AssetSelection.all() | dg.AssetSelection.all_asset_checks(),
    # The default is STOPPED, which nothing would report.
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
)
