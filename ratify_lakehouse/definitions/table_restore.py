"""RESTORE of a table: Spark's own command, as one ratified commit that the checks accept."""

import dagster as dg

from ratify_lakehouse.components.checks.acknowledged_commits import commit_acknowledged
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.interventions import Consequences, report_intervention
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.restore_plan import RestorePlan
from ratify_lakehouse.engines.spark.key_differences import MOST_ROWS, KeyDifferences, key_differences
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.spark_sql import at_version, table_name


def restored_keys(spark: Spark, plan: RestorePlan, declaration: TableDeclaration | None) -> KeyDifferences | None:
    """Return how many rows would differ, by the declared keys; None where there are none, or too many rows."""
    before, after = plan.rows
    if declaration is None or not declaration.keys or before is None or after is None or before + after > MOST_ROWS:
        return None
    if not plan.changes_rows or any(difference.startswith("column") for difference in plan.metadata):
        return None
    now, then = (at_version(table_name(plan.full_name), version) for version in (plan.latest, plan.version))
    return key_differences(spark, declaration.keys, now, then)


def restore_table(
    spark: Spark, instance: dg.DagsterInstance, plan: RestorePlan, means: Consequences, reason: str
) -> Commit | None:
    """Do what a plan says, and show it on the page of the asset; None if that changed nothing.

    Raises:
        CommitConflict: another writer has committed since the plan was made; nothing was restored.
    """
    # To the version, not to a time: what goes on from the restored rows finds it in the history.
    statement = f"RESTORE TABLE {table_name(plan.full_name)} TO VERSION AS OF {plan.version}"
    commit = commit_acknowledged(spark, plan.full_name, lambda: spark.rows(spark.sql(statement)), reason, plan.latest)
    if commit:
        shown = {
            "restored to version": plan.version,
            "Delta version": commit.version,
            "versions undone": len(plan.undone),
            "reason": reason,
            "run next": ", ".join(means.downstream) or "nothing",
        }
        rows = {"rows removed": plan.removed.rows, "rows brought back": plan.added.rows}
        known = {name: number for name, number in rows.items() if number is not None}
        report_intervention(instance, means.declaration, {**shown, **known})
    return commit
