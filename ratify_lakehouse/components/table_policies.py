"""When a table is materialized, and how old its data may be."""

from collections.abc import Callable, Collection
from typing import Any

import dagster as dg

from ratify_lakehouse.components.declared_freshness import Freshness

_LABEL = "inputs are new and passed their blocking checks"


def downstream_of_checked() -> dg.AutomationCondition[Any]:
    """Materialize when an input has a new version, no input is missing, and none failed a blocking check.

    It differs from `eager()` in five ways. A run that committed nothing to an input starts nothing: the data version of a
    table is its Delta version. An input whose blocking check failed in an earlier run holds its dependents back, because a
    blocking check stops only the steps of its own run; an input that is requested in the same tick is materialized in the
    same run, where the check does block. A table's own materialization does not clear inputs that changed while it ran:
    `eager()` forgets them, and rows that landed meanwhile would wait for the next file. A table that a run was to make
    together with its input, but has not, is asked for once the input passes its checks: `eager()` takes the plan for the
    deed. And a table that is missing when it is first looked at is materialized as soon as its inputs are there: `eager()`
    waits until one of them changes, which a table that a killed run left behind, or that was declared after its inputs, may
    never see.
    """
    condition = dg.AutomationCondition
    requested = condition.newly_requested()
    together = condition.executed_with_root_target()
    by_others = condition.any_deps_match((condition.data_version_changed() & ~together) | condition.will_be_requested())
    # Where both hold in one tick, the input may have changed after the run had read it. A run too many commits nothing.
    changed = by_others.since(requested & ~by_others)
    # A table that a run was to make with its inputs, or that is missing, is settled once it is made: not by an older run
    # that ends while a newer one is to make it, too.
    planned = condition.any_deps_match(condition.data_version_changed() & together)
    made = condition.newly_updated() & ~condition.in_progress()
    left_over = (condition.newly_missing() | planned).since(made | requested)
    idle = ~condition.any_deps_missing() & ~condition.any_deps_in_progress() & ~condition.in_progress()
    passed = condition.all_checks_match(condition.check_passed(), blocking_only=True)
    inputs_passed = condition.all_deps_match(passed | condition.will_be_requested())
    return ((changed | left_over) & idle & inputs_passed).with_label(_LABEL)


def without_condition(partitioned: Collection[dg.AssetKey]) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    """Return what takes `downstream_of_checked` from tables with partitions, and from what reads one.

    It would ask for each partition of its own, and wait until all of them are there. These assets are asked for otherwise:
    see `asked_for_as_a_whole`.
    """

    def mapped(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(automation_condition=None) if _as_a_whole(spec, partitioned) else spec

    return mapped


def whole_tables(defs: dg.Definitions, asked_for: Collection[dg.AssetKey] = ()) -> dg.Definitions:
    """Return definitions in which no table has partitions, to evaluate the conditions of whole tables.

    Args:
        defs: The definitions.
        asked_for: Tables that are asked for whatever their condition says.
    """
    condition = dg.AutomationCondition
    always = condition.missing() | ~condition.missing()

    def whole(spec: dg.AssetSpec) -> dg.AssetSpec:
        spec = spec.replace_attributes(partitions_def=None)
        return spec.replace_attributes(automation_condition=always) if spec.key in asked_for else spec

    external = [each for each in defs.assets or () if isinstance(each, dg.AssetSpec)]
    tables = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
    mapped = dg.map_asset_specs(whole, tables)
    return dg.Definitions(assets=[*external, *mapped], asset_checks=defs.asset_checks, resources=defs.resources)


def asked_for_as_a_whole(defs: dg.Definitions, partitioned: Collection[dg.AssetKey]) -> list[dg.AssetsDefinition]:
    """Return the assets, with the condition that `without_condition` takes from them, one for each step that makes them."""
    assets = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
    return [asset for asset in assets if any(_as_a_whole(spec, partitioned) for spec in asset.specs)]


def _as_a_whole(spec: dg.AssetSpec, partitioned: Collection[dg.AssetKey]) -> bool:
    # A condition that somebody else has given to an asset in Python stays as it is.
    ours = spec.automation_condition is not None and spec.automation_condition.get_label() == _LABEL
    return ours and not {spec.key, *(dep.asset_key for dep in spec.deps)}.isdisjoint(partitioned)


def with_freshness(spec: dg.AssetSpec, freshness: Freshness | None = None) -> dg.AssetSpec:
    """Add to a table's spec how old its last materialization may be: as declared, or else a day."""
    warn_after, error_after = (freshness or Freshness()).limits()
    return spec.replace_attributes(
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=error_after, warn_window=warn_after)
    )


def with_policies(spec: dg.AssetSpec, freshness: Freshness | None = None) -> dg.AssetSpec:
    """Add to the spec of a table that is made of other tables when it is materialized, and `with_freshness`."""
    return with_freshness(spec, freshness).replace_attributes(automation_condition=downstream_of_checked())
