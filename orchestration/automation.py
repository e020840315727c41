"""When a table is brought up to date: policies by layer, mapped once over all assets."""

import datetime as dt
from typing import Any

import dagster as dg

FRESH_WITHIN = dt.timedelta(hours=36)
"""A nightly run that fails once is a warning after a day, and a failure when the next night has passed too."""


def downstream_of_checked() -> dg.AutomationCondition[Any]:
    """Materialize when an input has a new version, all inputs are there, and none failed a blocking check.

    `eager()` alone would go on from an input whose blocking check failed in an earlier run: blocking stops the steps of
    the same run only. An input that is asked for in the same tick is made in the same run, where it does.
    """
    passed = dg.AutomationCondition.all_checks_match(dg.AutomationCondition.check_passed(), blocking_only=True)
    inputs_passed = dg.AutomationCondition.all_deps_match(passed | dg.AutomationCondition.will_be_requested())
    return (dg.AutomationCondition.eager() & inputs_passed).with_label("inputs are new and passed their blocking checks")


def with_policies(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Add to a table's spec the policies of its layer."""
    if spec.group_name in {"silver", "gold"}:
        spec = spec.replace_attributes(automation_condition=downstream_of_checked())
    if spec.group_name in {"bronze", "silver", "gold"}:
        policy = dg.FreshnessPolicy.time_window(fail_window=FRESH_WITHIN, warn_window=dt.timedelta(hours=25))
        spec = spec.replace_attributes(freshness_policy=policy)
    return spec


automation_sensor = dg.AutomationConditionSensorDefinition(
    "automation",
    target=dg.AssetSelection.all(),
    # They are created STOPPED otherwise, and nothing would say so.
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
)
