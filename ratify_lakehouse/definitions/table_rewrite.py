"""Rows of a table deleted, or replaced, by a condition: what is refused, and the one commit that the checks accept."""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from ratify_lakehouse.components.checks.acknowledged_commits import commit_acknowledged
from ratify_lakehouse.components.personal_columns import columns_in
from ratify_lakehouse.components.query_component import query_text
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.interventions import Consequences, refuse_in_use, report_intervention
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.delta.append_only import refuse_append_only
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.spark.conditional_change import ConditionalChange, change_rows, planned_change
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import query_errors
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.sql.table_query import TableName


@dataclass(frozen=True)
class ConditionalRewrite:
    """Rows of a table that fulfil a condition are deleted, or replaced.

    Attributes:
        full_name: The table.
        where: The condition, in Spark's SQL.
        by: File of the query that gives the rows in their place; None: they are deleted.
        every_row: Whether all rows may fulfil the condition.
    """

    full_name: str
    where: str
    by: Path | None = None
    every_row: bool = False

    def planned(self, spark: Spark, log: DeltaLog, means: Consequences) -> ConditionalChange:
        """Return what it would do.

        Raises:
            UnsafeTable: all rows fulfil the condition, or the table is append-only, or not managed.
            QueryFailed, QueryMismatch, UnsafeDeclaration: as `planned_change`, and where there is no such file.
        """
        snapshot = log.refresh()
        refuse_append_only(self.full_name, snapshot.properties)
        declared = means.declaration
        hidden = _personal(spark, declared) if declared else set[str]()
        query = None if self.by is None else query_text(self.by)
        keys = declared.keys if declared else ()
        change = planned_change(spark, self.full_name, self.where, query, keys, hidden)
        if change.changes_every_row and not self.every_row:
            raise UnsafeTable(
                f"All {change.rows:,} rows of {self.full_name} match {self.where!r}; nothing was done. Pass --all if you "
                "mean them all."
            )
        return change

    def done(
        self, spark: Spark, log: DeltaLog, instance: dg.DagsterInstance, means: Consequences, reason: str
    ) -> tuple[ConditionalChange, Commit | None]:
        """Do it, and show it on the page of the asset; return what was done, and the commit if anything was.

        Where another writer commits between the look and the change, both are made again.

        Raises:
            TableInUse: a run in progress targets the table.
            CommitConflict: other writers won every attempt; nothing was committed.
            As `planned`.
        """
        return retried(lambda: self._once(spark, log, instance, means, reason), spark.attempts)

    def _once(
        self, spark: Spark, log: DeltaLog, instance: dg.DagsterInstance, means: Consequences, reason: str
    ) -> tuple[ConditionalChange, Commit | None]:
        change = self.planned(spark, log, means)
        if not change.changes:
            return change, None
        refuse_in_use(instance, means.declaration)
        with query_errors():
            commit = commit_acknowledged(spark, self.full_name, lambda: change_rows(spark, change), reason, change.version)
        if commit:
            metadata = {
                "Delta version": commit.version,
                "condition": self.where,
                "rows removed": change.matched,
                "rows brought": change.new or 0,
                "reason": reason,
                "run next": ", ".join(means.downstream) or "nothing",
            }
            report_intervention(instance, means.declaration, metadata)
        return change, commit


def _personal(spark: Spark, declared: TableDeclaration) -> set[str]:
    columns_of = columns_in(spark.catalog)
    is_personal = declared_tables().personal.of_table(declared.table_name, columns_of)
    return {*declared.personal, *filter(is_personal, columns_of(TableName(declared.layer, declared.name)))}
