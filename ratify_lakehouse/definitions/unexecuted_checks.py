"""Checks that a run did not execute because a step before them failed: Dagster would show each of them as failed, too.

What such a check found last is still what is known of its table, so it is reported again. One that has never been executed
warns, and says so.
"""

from collections.abc import Collection, Iterable, Iterator

import dagster as dg
from dagster._core.execution.plan.step import ExecutionStep

NOT_EXECUTED = "not executed because"
"""Metadata key of an evaluation that repeats an earlier one: the reason."""

_LOOKED_AT = 100


def report_unexecuted(
    instance: dg.DagsterInstance,
    steps: Iterable[ExecutionStep],
    failed: Collection[str],
    executed: Collection[str],
    evaluated: Collection[dg.AssetCheckKey],
) -> None:
    """Report the checks of a run that ended without them.

    Args:
        instance: The instance.
        steps: Those of the run.
        failed: The keys of the steps that failed.
        executed: The keys of those that began.
        evaluated: The checks that have a result.
    """
    reason = f"{', '.join(sorted(failed))} failed"
    for step in steps:
        # A step that only checks and fails has no answer, which is a failure; a table's has none for its expectations.
        if step.key in executed and not (step.key in failed and _makes_assets(step)):
            continue
        for key in _checks_of(step):
            if key not in evaluated:
                instance.report_runless_asset_event(_repeated(instance, key, reason))


def _makes_assets(step: ExecutionStep) -> bool:
    return any(output.properties.asset_key and not output.properties.asset_check_key for output in step.step_outputs)


def _checks_of(step: ExecutionStep) -> Iterator[dg.AssetCheckKey]:
    for output in step.step_outputs:
        if output.properties.asset_check_key:
            yield output.properties.asset_check_key


def _repeated(instance: dg.DagsterInstance, key: dg.AssetCheckKey, reason: str) -> dg.AssetCheckEvaluation:
    """Return the last result of a check, marked as repeated."""
    storage = instance.event_log_storage
    for record in storage.get_asset_check_execution_history(key, limit=_LOOKED_AT):
        found = record.evaluation
        if isinstance(found, dg.AssetCheckEvaluation) and NOT_EXECUTED not in found.metadata:
            return dg.AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=found.passed,
                severity=found.severity,
                description=f"As before ({reason}): {found.description or ''}",
                metadata={**found.metadata, NOT_EXECUTED: dg.MetadataValue.text(reason)},
                target_materialization_data=found.target_materialization_data,
                blocking=found.blocking,
                partition=found.partition,
            )
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"Never executed: {reason}.",
        metadata={NOT_EXECUTED: dg.MetadataValue.text(reason)},
    )
