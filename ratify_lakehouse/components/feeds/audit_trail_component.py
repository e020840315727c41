"""The component `AuditTrail`: who changed which row of a table, declared in YAML."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.feeds.audit_trail import AuditedTable, append_changes, reported_runs
from ratify_lakehouse.components.feeds.feed_component import FeedComponent, FeedParameters
from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE, step_name, table_spec
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.components.table_policies import with_policies
from ratify_lakehouse.declarations import APPEND_ONLY, Column, Engine, TableDeclaration, is_append_only
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.settings import catalog_name

_COLUMNS = (
    Column("table_id", "string", "Id of the table in the catalog; another one after it was dropped and created again"),
    Column("version", "bigint", "Version of the table that made the change"),
    Column("number", "int", "Which of the changes of that version to rows with these keys"),
    Column("committed_at", "timestamp", "When that version was committed"),
    Column("change", "string", "insert, update or delete"),
    Column("key", "string", "The keys of the row, JSON", pii=True),
    Column("before", "string", "The row before the change, JSON; NULL for an insert", pii=True),
    Column("after", "string", "The row after the change, JSON; NULL for a delete", pii=True),
    Column("operation", "string", "What the engine calls the operation, such as MERGE"),
    Column("engine", "string", "Engine that committed it"),
    Column("engine_info", "string", "Engine with its version, as the log has it"),
    Column("principal", "string", "Who committed it; NULL where the commit does not say"),
    Column("run_id", "string", "Dagster run that committed it; NULL where neither the commit nor a materialization says"),
)


class AuditTrailScaffolder(dg.Scaffolder[FeedParameters]):
    """Writes the `defs.yaml` of an audit trail."""

    @classmethod
    def get_scaffold_params(cls) -> type[FeedParameters]:
        """Return the command's options."""
        return FeedParameters

    def scaffold(self, request: dg.ScaffoldRequest[FeedParameters]) -> None:
        """Write it."""
        given = request.params
        dg.scaffold_component(
            request, {"description": given.description, "table": given.table, "keys": [given.key], "external": False}
        )


@dg.scaffold_with(AuditTrailScaffolder)
class AuditTrail(FeedComponent, TableComponent):
    """An append-only table of all changes of another table: who made them, when, and the row before and after."""

    from_version: int = Field(
        default=0,
        ge=0,
        description="Version of the table to start or continue from; earlier changes are left out",
    )

    @cached_property
    def audited(self) -> AuditedTable:
        """The table and its trail.

        Raises:
            UnsafeDeclaration: the attributes are wrong.
        """
        if APPEND_ONLY in self.table_properties and not is_append_only(self.table_properties):
            raise UnsafeDeclaration("nobody may change what a trail has recorded: remove it.", "table_properties")
        trail = self.declared(
            columns=_COLUMNS,
            writer=Engine.SPARK,
            operations=frozenset({"MERGE"}),
            keys=("table_id", "version", "key", "number"),
        )
        return AuditedTable(trail, str(self.followed), tuple(self.keys), self.from_version)

    @property
    def properties(self) -> dict[str, str]:
        """Those of every table, and that nobody can change what is recorded."""
        return {**super().properties, APPEND_ONLY: "true"}

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The trail."""
        return (self.audited.trail,)

    def table_defs(self) -> dg.Definitions:
        """Return the trail and its checks."""
        audited, followed = self.audited, dg.AssetKey(self.followed.key_path(catalog_name()))

        @dg.multi_asset(
            name=step_name(audited.trail), op_tags={SIDE_BY_SIDE: "spark"}, specs=[table_spec(audited.trail, [followed])]
        )
        @in_one_line(audited.trail.table_name, lambda: True)
        def trail(context: dg.AssetExecutionContext, spark: Spark) -> dg.MaterializeResult[Any]:
            return append_changes(spark, audited, partial(reported_runs, context.instance, followed))

        return self.definitions([trail], [], with_policies)
