"""The component `SqlTable`: a table whose rows are those of one query, which stands in a `.sql` file beside the YAML."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.checks.check_definitions import rows_reconciled_check
from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.declared_append import AppendedInput, check_appended, driving_input
from ratify_lakehouse.components.declared_history import (
    NO_QUARANTINE_OF_PERIODS,
    Periods,
    TableHistory,
    appended_period,
    followed_history,
)
from ratify_lakehouse.components.declared_incremental import check_day, check_incremental
from ratify_lakehouse.components.declared_partitions import NO_QUARANTINE_OF_PARTITIONS, DeclaredPartitions
from ratify_lakehouse.components.declared_reconciliation import ReconciledInput
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.expectations.expectation_checks import check_specs
from ratify_lakehouse.components.expectations.expectation_rules import Expectations, Unique
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.query_component import QueriedColumn, QueryComponent, UniqueRow, check_no_quarantine
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.sql_table_scaffolder import SqlTableScaffolder
from ratify_lakehouse.components.strategies.append_pass import RefreshConfig
from ratify_lakehouse.components.strategies.appended_periods import PeriodQuery, materialize_periods
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.strategies.partition_checks import partitions_check
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.pass_results import materialize_whole
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.strategies.table_passes import (
    materialize_appended,
    materialize_changes,
    materialize_history,
    materialize_partitions,
    plan_table,
)
from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE, asset_key, chosen_results, step_name, table_spec
from ratify_lakehouse.components.table_component import TableColumn
from ratify_lakehouse.components.table_policies import with_policies
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.row_history import CURRENT, VALID_FROM, VALID_TO, RowHistory
from ratify_lakehouse.sql.table_query import Dialect, TableName, check_columns

TableResult = dg.MaterializeResult[Any] | dg.AssetCheckResult | dg.AssetMaterialization
"""What computing a table reports."""

PARTITIONS_TAG, STALE = "ratify/partitions", "stale"
"""Tag of a run of all partitions, which computes those that are stale. Without partitions, Dagster does not run a table with
partitions that reads another one."""


@dg.scaffold_with(SqlTableScaffolder)
class SqlTable(QueryComponent):
    """A table whose rows are those of a query, computed by Spark or DuckDB whenever one of its inputs has changed.

    Its inputs and its column lineage are read from the query, which names each table with its schema.
    """

    engine: Literal["spark", "duckdb"] = Field(
        default="spark",
        description="The engine that computes the query, which is in its SQL",
    )
    columns: list[QueriedColumn] = Field(
        default=[], description="Descriptions, types and marks of the query's columns; it may have others"
    )
    keys: list[str] = Field(
        default=[], description="Columns that identify a row; optional only for the strategies append and append_by_period"
    )
    strategy: Literal["full", "incremental", "append", "append_by_period", "scd2", "partition"] = Field(
        default="full",
        description="full computes all rows; incremental the rows that changed input rows may affect; append those of an "
        "input's new rows, once; append_by_period the periods that the table lacks; scd2 keeps the history of all rows; "
        "partition computes the requested or stale partitions",
    )
    append: AppendedInput | None = Field(
        default=None, description="For the strategy append: the input that drives it, if the query reads several row by row"
    )
    append_by_period: Periods | None = Field(
        default=None, description="For the strategy append_by_period: the column with the period of a row"
    )
    history: TableHistory | None = Field(
        default=None, description="For the strategy scd2: since when a row is valid, and what starts or ends a version"
    )
    partitions: DeclaredPartitions | None = Field(
        default=None, description="The partitions of a table of the strategy partition"
    )
    day: str = Field(
        default="", description="Column with the day of a row, by which `ratify reprocess` finds the rows of a day"
    )
    external: list[str] = Field(
        default=[], description="Inputs in the project's catalog that no asset of the project makes, as schema.table"
    )
    intermediate_columns: list[str] = Field(
        default=[], description="Columns of the query that only expectations and `unique` use; they are not in the table"
    )
    unique: UniqueRow | None = Field(
        default=None, description="Which of several rows with the same keys is accepted; by default they are an error"
    )
    reconcile: ReconciledInput | None = Field(
        default=None, description="Check that no input row is lost or duplicated on the way, counted by DuckDB"
    )

    @property
    def _marked(self) -> Sequence[TableColumn]:
        return self.columns

    @property
    def _renamed(self) -> Mapping[str, str]:
        return {name: self.table.query_column(name) for name in (VALID_FROM, VALID_TO, CURRENT)} if self.followed else {}

    @property
    def dialect(self) -> Dialect:
        """The SQL of the engine."""
        return "duckdb" if self.engine == "duckdb" else "databricks"

    @cached_property
    def table(self) -> ValidatedQuery:
        """The table, its query, and its expectations.

        Raises:
            UnsafeDeclaration: the attributes contradict each other or the query.
        """
        keys, rules = tuple(self.keys), self.rules()
        with in_field("reconcile"):
            rows = self.reconcile.rows(self.query) if self.reconcile else None
        by_duckdb = self.engine == "duckdb"
        if by_duckdb and LANDING in self.query.text:
            raise UnsafeDeclaration(f"the query reads {LANDING}, which only Spark knows: use the engine spark.", "engine")
        if self.strategy != "full":
            check_incremental(self.strategy, self.query, rules)
        if self.driving:
            check_appended(self.query, rules, [field for field in ("unique", "reconcile") if getattr(self, field)])
        elif self.period:
            check_no_quarantine(rules, NO_QUARANTINE_OF_PERIODS)
        elif not keys:
            raise UnsafeDeclaration("Nothing identifies a row: name at least one column.", "keys")
        check_day(self.day, self.strategy, self.known_columns)
        if self.partitioned:
            check_no_quarantine(rules, NO_QUARANTINE_OF_PARTITIONS)
        if self.unique and not keys:
            raise UnsafeDeclaration("it takes the latest of the rows with the same keys: name them under `keys`.", "unique")
        if self.unique and "*" not in self.query.columns:
            with in_field("unique", "latest"):
                check_columns(self.unique.latest, self.query)
        merges = ["MERGE"] if self.strategy in ("incremental", "scd2", "partition") else []
        row_keys, stored_keys = self._keys
        declaration = self.declared(
            columns=self.declared_columns(self.columns, [each.type for each in self.columns]),
            writer=Engine.DUCKDB if by_duckdb else Engine.SPARK,
            operations=frozenset({"WRITE", *merges} if by_duckdb or self.driving else {"MERGE"}),
            keys=stored_keys,
            inferred=True,
        )
        expectations = Expectations(
            rules=rules,
            identity=rows.row_id if rows else row_keys,
            unique=Unique("one_row_for_each_key", row_keys, tuple(self.unique.latest)) if self.unique else None,
            dialect=DUCKDB if by_duckdb else SPARK,
        )
        given = declaration, self.query, expectations, tuple(self.intermediate_columns), rows, row_keys, self.personal
        if self.followed:
            return HistoryQuery(*given, history=self.followed)
        return PeriodQuery(*given, period=self.period) if self.period else ValidatedQuery(*given)

    @property
    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that identify a row of the query, and those that identify one of the table."""
        keys = tuple(self.keys)
        if followed := self.followed:
            return (*keys, *filter(None, [followed.updated_at])), (*keys, VALID_FROM)
        if self.period:
            keys = tuple(dict.fromkeys((self.period, *keys))) if keys else ()
        # A table without keys is one whose rows are never changed.
        return keys, () if self.driving or self.period else keys

    @property
    def period(self) -> str:
        """The column with the period of a row, in a table of the strategy append_by_period; empty for another strategy."""
        return appended_period(self.strategy, self.append_by_period, reconciled=bool(self.reconcile))

    @property
    def followed(self) -> RowHistory | None:
        """What the history of a table of the strategy scd2 follows; None for another strategy."""
        return followed_history(self.strategy, self.history, self.keys, self.query, reconciled=bool(self.reconcile))

    @cached_property
    def driving(self) -> TableName | None:
        """The input that a table of the strategy append follows; None for another strategy.

        Raises:
            UnsafeDeclaration: the declaration names none, or another than the query allows.
        """
        if self.strategy == "append":
            return driving_input(self.query, self.append)
        if self.append:
            raise UnsafeDeclaration("only the strategy append follows an input: remove it.", "append")
        return None

    @cached_property
    def partitioned(self) -> TablePartitions | None:
        """The table's partitions, if it has some.

        Raises:
            UnsafeDeclaration: they contradict the strategy or the query.
        """
        if self.strategy != "partition":
            if self.partitions:
                raise UnsafeDeclaration("only a table of the strategy partition has partitions.", "partitions")
            return None
        if not self.partitions:
            raise UnsafeDeclaration("it needs `partitions`: a column, and its days or values.", "strategy")
        if self.reconcile:
            raise UnsafeDeclaration("rows of a table with partitions cannot be reconciled: remove it.", "reconcile")
        with in_field("partitions"):
            return self.partitions.partitions(self.query, self.keys)

    @property
    def day_column(self) -> str:
        """The column with the day of a row; empty if there is none."""
        found = self.partitioned
        return found.column if found and found.start else self.day

    @property
    def known_columns(self) -> Collection[str] | None:
        """The query's, but for intermediate ones, and those of a history; None where the query does not name them all."""
        if "*" in self.query.columns:
            return None
        of_history = (VALID_FROM, VALID_TO, CURRENT) if self.strategy == "scd2" else ()
        return [name for name in (*self.query.columns, *of_history) if name not in self.intermediate_columns]

    @property
    def rewrites(self) -> str:
        """See `TableComponent`."""
        return "" if self.driving or self.period else f"The strategy {self.strategy} updates and deletes rows"

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table, and its quarantine if it has one."""
        return self.table.written

    def plan(self, spark: Spark, duckdb: DuckDB) -> PassPlan:
        """Return what the next run of the table would do; nothing is computed.

        Raises:
            QueryMismatch, TableMissing, HistoryNotContinued: it would fail.
        """
        if self.strategy == "full":
            return PassPlan("all rows", "its strategy is full")
        if self.period:
            return PassPlan("new rows", "those of periods that the table does not have")
        with self._session(duckdb) as session:
            return plan_table(spark, self.table, session, driving=self.driving, partitions=self.partitioned)

    def _session(self, duckdb: DuckDB | None) -> AbstractContextManager[DuckDBSession | None]:
        return duckdb.session() if duckdb and self.engine == "duckdb" else nullcontext()

    def table_defs(self) -> dg.Definitions:
        """Return the table, its quarantine if it has one, and their checks."""
        table = self.table
        deps = [dg.AssetKey(name.key_path(catalog_name())) for name in table.query.inputs]

        def computed(context: dg.AssetExecutionContext, spark: Spark, duckdb: DuckDB) -> Iterator[TableResult]:
            stale = context.run.tags.get(PARTITIONS_TAG) == STALE
            chosen = (context.has_partition_key or context.has_partition_key_range) and not stale
            for result in chosen_results(self.results(spark, duckdb, list(context.partition_keys) if chosen else None)):
                # Of a run with partitions Dagster reports each.
                if not (stale and isinstance(result, dg.AssetMaterialization)):
                    yield result

        def refreshed(config: RefreshConfig, spark: Spark, duckdb: DuckDB) -> Iterator[TableResult]:
            yield from chosen_results(self.results(spark, duckdb, full_refresh=config.full_refresh))

        compute = refreshed if self.strategy in ("append", "incremental") else computed
        asset = dg.multi_asset(
            name=step_name(table.declaration),
            # Else the page of a table would ask whether its quarantine may be materialized, too.
            can_subset=bool(table.quarantine),
            op_tags={} if self.engine == "duckdb" else {SIDE_BY_SIDE: "spark"},
            specs=[
                table_spec(each, deps)
                .merge_attributes(metadata={"query": dg.MetadataValue.md(f"```sql\n{table.query.text}\n```")})
                .replace_attributes(code_version=table.code_version)
                for each in table.written
            ],
            check_specs=check_specs(table.expectations, asset_key(table.declaration)),
            partitions_def=self.partitioned and self.partitioned.definition,
            # One run, and one commit, for any number of partitions.
            backfill_policy=dg.BackfillPolicy.single_run() if self.partitioned else None,
        )(in_one_line(table.declaration.table_name, lambda: self.personal.concerned(table.declaration.table_name))(compute))
        checks = [rows_reconciled_check(table.declaration, table.quarantine, table.reconciled)] if table.reconciled else []
        if self.partitioned:
            checks.append(partitions_check(table, self.partitioned))
        return self.definitions([asset], checks, with_policies)

    def results(
        self,
        spark: Spark,
        duckdb: DuckDB | None,
        chosen: Sequence[str] | None = None,
        again: DaysAgain | None = None,
        *,
        full_refresh: bool = False,
    ) -> Iterator[TableResult]:
        """Compute the table, and yield its results.

        Args:
            spark: The session.
            duckdb: For a table of the engine DuckDB.
            chosen: The partitions to compute; None: those that changes of the inputs affect.
            again: Of a table of the strategy incremental: the rows of these days are computed as well.
            full_refresh: Of a table of the strategy append or incremental: all of its rows are computed.

        Raises:
            As `materialize`.
        """
        with self._session(duckdb) as session:
            if self.partitioned:
                yield from materialize_partitions(spark, self.table, self.partitioned, chosen, session)
            elif isinstance(self.table, HistoryQuery):
                yield from materialize_history(spark, self.table, session)
            elif isinstance(self.table, PeriodQuery):
                yield from materialize_periods(spark, session, self.table)
            elif self.driving:
                yield from materialize_appended(spark, self.table, self.driving, session, full_refresh=full_refresh)
            elif self.strategy == "incremental":
                yield from materialize_changes(spark, self.table, again, session, full_refresh=full_refresh)
            else:
                yield from materialize_whole(spark, session, self.table)
