"""The component `SqlTable`: a table whose rows are those of one query, which stands in a `.sql` file beside the YAML."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from components.checks.check_definitions import rows_reconciled_check
from components.checks.row_reconciliation import InputRows
from components.declaration_places import in_field
from components.expectations.expectation_checks import check_specs
from components.expectations.expectation_rules import Action, Expectations, Unique
from components.expectations.rule_dialects import DUCKDB, SPARK
from components.landing_order import LANDING
from components.query_component import QueryComponent
from components.query_engines import DuckDBQueries, SparkQueries
from components.sql_table import ValidatedQuery, materialize
from components.strategies.appended_rows import RefreshConfig, materialize_appended
from components.strategies.changed_rows import materialize_changes
from components.table_asset import SIDE_BY_SIDE, asset_key, step_name, table_spec
from components.table_component import TableColumn, table_definitions
from components.table_policies import with_policies
from resources.declarations import Engine, TableDeclaration
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import UnsafeDeclaration
from resources.settings import catalog_name
from resources.spark.spark_engine import Spark
from resources.sql.query_parts import nondeterministic
from resources.sql.row_wise_inputs import row_wise_inputs
from resources.sql.table_query import Dialect, TableName, check_columns


class QueriedColumn(TableColumn):
    """A column of the query."""

    type: str = Field(default="", description="Type that the query has to give, in Spark SQL's words; empty: any")


class UniqueRow(dg.Model, dg.Resolvable):
    """Which of several rows with the same keys is accepted; the others are dropped."""

    latest: list[str] = Field(
        description="The row that is greatest in these columns, in this order; no two rows may be equal in all of them"
    )


class ReconciledInput(dg.Model, dg.Resolvable):
    """An input whose every row has to be in the table, in its quarantine, or a duplicate of one in the table."""

    input: str = Field(description="A table that the query reads, as schema.table")
    row_id: list[str] = Field(
        description="Columns that identify a row of the input; the query gives them under the same names"
    )
    key: list[str] = Field(description="Columns of the input; of its rows with the same values the table has one")


class AppendedInput(dg.Model, dg.Resolvable):
    """The input whose new rows a table of the strategy `append` follows."""

    input: str = Field(
        description="A table that the query reads row by row, and to which rows are only added, as schema.table"
    )


class SqlTableParameters(BaseModel):
    """Options of `dg scaffold defs components.SqlTable`."""

    source: str = Field(description="Table that the query reads, such as bronze.orders")
    key: str = Field(description="Column that identifies a row; more of them are added to defs.yaml")
    description: str = Field(default="Rows of the query beside it", description="What a row is")


class SqlTableScaffolder(dg.Scaffolder[SqlTableParameters]):
    """Writes the `defs.yaml` of a table and its query."""

    @classmethod
    def get_scaffold_params(cls) -> type[SqlTableParameters]:
        """Return the command's options."""
        return SqlTableParameters

    def scaffold(self, request: dg.ScaffoldRequest[SqlTableParameters]) -> None:
        """Write them."""
        given = request.params
        dg.scaffold_component(request, {"description": given.description, "keys": [given.key]})
        query = request.target_path / f"{request.target_path.name}.sql"
        query.write_text(f"SELECT *\nFROM {given.source}\n")


@dg.scaffold_with(SqlTableScaffolder)
class SqlTable(QueryComponent):
    """A table whose rows are those of a query, computed by Spark or DuckDB whenever one of its inputs has changed.

    Its inputs and its column lineage are read from the query, which names each table with its schema.
    """

    engine: Literal["spark", "duckdb"] = Field(
        default="spark",
        description="What computes the query, in its SQL: spark merges the changed rows, duckdb replaces the files",
    )
    columns: list[QueriedColumn] = Field(
        default=[], description="What is to be said of the query's columns; others may be there"
    )
    keys: list[str] = Field(default=[], description="Columns that identify a row; only the strategy append can do without")
    strategy: Literal["full", "changes", "append"] = Field(
        default="full",
        description="What is computed: full computes all rows, changes those that changed rows of the inputs may affect, "
        "append those of rows that are new in an input, once",
    )
    append: AppendedInput | None = Field(
        default=None, description="Of the strategy append: which input drives it, where the query reads several row by row"
    )
    external: list[str] = Field(
        default=[], description="Inputs in the project's catalog that no asset of the project makes, as schema.table"
    )
    helpers: list[str] = Field(
        default=[], description="Columns of the query that only expectations and `unique` use; the table does not have them"
    )
    unique: UniqueRow | None = Field(
        default=None, description="Which of several rows with the same keys is accepted; without it they are an error"
    )
    reconcile: ReconciledInput | None = Field(
        default=None, description="Check that no row of an input is lost or doubled on the way, counted by DuckDB"
    )

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
        keys, rules, rows = tuple(self.keys), self.rules(), self._input_rows()
        by_duckdb = self.engine == "duckdb"
        if by_duckdb and LANDING in self.query.text:
            raise UnsafeDeclaration(f"the query reads {LANDING}, which only Spark knows: use the engine spark.", "engine")
        appends = self.strategy == "append"
        if self.strategy != "full":
            self._check_incremental()
        if appends:
            self._check_appends()
        elif not keys:
            raise UnsafeDeclaration("Nothing identifies a row: name at least one column.", "keys")
        if self.append and not appends:
            raise UnsafeDeclaration("only the strategy append follows an input: take it out.", "append")
        dialect = DUCKDB if by_duckdb else SPARK
        if self.unique and "*" not in self.query.columns:
            with in_field("unique", "latest"):
                check_columns(self.unique.latest, self.query)
        return ValidatedQuery(
            self.declared(
                columns=self.declared_columns(self.columns, [each.type for each in self.columns]),
                writer=Engine.DUCKDB if by_duckdb else Engine.SPARK,
                operations=frozenset({"WRITE"} if by_duckdb or appends else {"MERGE"}),
                # A table without keys is one whose rows are never changed.
                keys=() if appends else keys,
                inferred=True,
            ),
            self.query,
            Expectations(
                rules=rules,
                identity=rows.row_id if rows else keys,
                example=dialect.all_json,
                unique=Unique("one_row_for_each_key", keys, tuple(self.unique.latest)) if self.unique else None,
                dialect=dialect,
            ),
            tuple(self.helpers),
            rows,
            keys=keys,
        )

    @cached_property
    def driving(self) -> TableName:
        """The input that a table of the strategy `append` follows.

        Raises:
            UnsafeDeclaration: the query reads none row by row, or several, and none or another one is named.
        """
        found = row_wise_inputs(self.query)
        named = [each for each in found if self.append and str(each).casefold() == self.append.input.casefold()]
        if self.append and not named:
            raise UnsafeDeclaration(
                f"the query does not read {self.append.input} row by row. So it reads: {_listed(found)}.", "append", "input"
            )
        if not found:
            raise UnsafeDeclaration(
                "the query reads no input row by row, so that new rows of an input would change rows that were appended: "
                "use the strategy changes.",
                "strategy",
            )
        if len(found) > 1 and not named:
            raise UnsafeDeclaration(
                f"new rows of each of {_listed(found)} give new rows of the query: name under `append` the input that the "
                "table follows; rows of the others are joined as they are then, or use the strategy changes.",
                "strategy",
            )
        return (named or found)[0]

    def _check_appends(self) -> None:
        _ = self.driving
        if LANDING in self.query.text:
            raise UnsafeDeclaration(
                f"the query reads {LANDING}, which changes when a file lands again: use the strategy changes.", "strategy"
            )
        for field in ("unique", "reconcile"):
            if getattr(self, field):
                raise UnsafeDeclaration(
                    "rows that were appended stay, whatever comes later: use the strategy changes.", field
                )
        for number, each in enumerate(self.expectations):
            if each.action is Action.QUARANTINE:
                raise UnsafeDeclaration(
                    "the strategy append has one table and no quarantine: use drop, warn or fail, or the strategy changes.",
                    *("expectations", number, "action"),
                )

    def _check_incremental(self) -> None:
        if self.engine == "duckdb":
            raise UnsafeDeclaration(
                "only Spark computes what has changed: use the engine spark, or the strategy full.", "strategy"
            )
        if names := nondeterministic(self.query):
            raise UnsafeDeclaration(
                f"the query has {names[0]}, which gives another value in each run, so that rows change whose inputs have "
                "not: take it out, or use the strategy full.",
                "strategy",
            )

    def _input_rows(self) -> InputRows | None:
        if not self.reconcile:
            return None
        given = self.reconcile
        of_project = [name for name in self.query.inputs if name.catalog in ("", catalog_name())]
        found = [name for name in of_project if f"{name.schema}.{name.table}".casefold() == given.input.casefold()]
        if not found:
            raise UnsafeDeclaration(
                f"{given.input} is no input of the query, which reads {', '.join(map(str, of_project))}.",
                *("reconcile", "input"),
            )
        for field, columns in (("row_id", given.row_id), ("key", given.key)):
            if not columns:
                raise UnsafeDeclaration("Nothing identifies a row: name at least one column.", "reconcile", field)
        return InputRows(found[0], tuple(given.row_id), tuple(given.key))

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table, and its quarantine if it has one."""
        return self.table.written

    def table_defs(self) -> dg.Definitions:
        """Return the table, its quarantine if it has one, and their checks."""
        table = self.table
        deps = [dg.AssetKey(name.key_path(catalog_name())) for name in table.query.inputs]
        shown = dg.MetadataValue.md(f"```sql\n{table.query.text}\n```")

        def by_spark(spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            if self.strategy == "changes":
                yield from materialize_changes(spark, table)
            else:
                yield from materialize(SparkQueries(spark), table)

        def appending(config: RefreshConfig, spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            yield from materialize_appended(spark, table, self.driving, full_refresh=config.full_refresh)

        def by_duckdb(spark: Spark, duckdb: DuckDB) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            with duckdb.session() as session:
                yield from materialize(DuckDBQueries(session, spark), table)

        compute = by_duckdb if self.engine == "duckdb" else appending if self.strategy == "append" else by_spark
        asset = dg.multi_asset(
            name=step_name(table.declaration),
            op_tags={} if self.engine == "duckdb" else {SIDE_BY_SIDE: "spark"},
            specs=[table_spec(each, deps).merge_attributes(metadata={"query": shown}) for each in table.written],
            check_specs=check_specs(table.expectations, asset_key(table.declaration)),
        )(compute)

        checks = [rows_reconciled_check(table.declaration, table.quarantine, table.reconciled)] if table.reconciled else []
        return table_definitions([asset], checks, with_policies, table.written)


def _listed(names: Sequence[TableName]) -> str:
    return ", ".join(map(str, names)) or "none"
