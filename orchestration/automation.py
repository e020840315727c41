"""When a table is brought up to date: policies by layer, mapped once over all assets."""

import datetime as dt
from typing import Any

import dagster as dg

FRESH_WITHIN = dt.timedelta(hours=36)
"""A nightly run that fails once is a warning after a day, and a failure when the next night has passed too."""


def downstream_of_checked() -> dg.AutomationCondition[Any]:
    """Materialize when an input has a new version, all inputs are there, and none failed a blocking check.

    It differs from `eager()` in two things. An input whose blocking check failed in an earlier run holds its dependents
    back, because blocking stops the steps of the same run only; an input that is asked for in the same tick is made in the
    same run, where it does. And a table's own materialization does not count as an answer to inputs that changed while it
    ran: `eager()` forgets them, and the rows that landed meanwhile would wait for the next file.
    """
    condition = dg.AutomationCondition
    changed = (condition.newly_missing() | condition.any_deps_updated()).since(
        condition.newly_requested() | condition.initial_evaluation()
    )
    idle = ~condition.any_deps_missing() & ~condition.any_deps_in_progress() & ~condition.in_progress()
    passed = condition.all_checks_match(condition.check_passed(), blocking_only=True)
    inputs_passed = condition.all_deps_match(passed | condition.will_be_requested())
    return (changed & idle & inputs_passed).with_label("inputs are new and passed their blocking checks")


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
    target=dg.AssetSelection.all() | dg.AssetSelection.all_asset_checks(),
    # They are created STOPPED otherwise, and nothing would say so.
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
)
