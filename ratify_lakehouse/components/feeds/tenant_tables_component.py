"""The component `TenantTables`: a table for each tenant, with the rows of another table that are the tenant's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.feeds.feed_component import FeedComponent, FeedParameters
from ratify_lakehouse.components.personal_columns import MarkedTable
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE, asset_key, step_name, table_spec
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.components.table_policies import with_policies
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import InvalidDeclaration, UnsafeDeclaration
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.query_parts import nondeterministic
from ratify_lakehouse.sql.spark_sql import table_name
from ratify_lakehouse.sql.table_query import TableQuery
from ratify_lakehouse.wording import counted

_EXCLUSIVE, _COMPLETE = "exclusive", "complete"


class Tenant(dg.Model, dg.Resolvable):
    """A tenant, whose table is named after the folder and the tenant."""

    name: str = Field(description="Name, the end of the name of the table: <folder>_<name>")
    where: str = Field(description="Spark SQL predicate over the table's columns: the rows of the tenant")
    owner: str = Field(default="", description="Team responsible for its table; by default the owner of all")


class TenantParameters(FeedParameters):
    """Options of `dg scaffold defs ratify_lakehouse.TenantTables`."""

    tenant: str = Field(description="Name of the first tenant")
    where: str = Field(description="Predicate of its rows, such as region = 'north'")


class TenantTablesScaffolder(dg.Scaffolder[TenantParameters]):
    """Writes the `defs.yaml` of tables for tenants."""

    @classmethod
    def get_scaffold_params(cls) -> type[TenantParameters]:
        """Return the command's options."""
        return TenantParameters

    def scaffold(self, request: dg.ScaffoldRequest[TenantParameters]) -> None:
        """Write it."""
        given = request.params
        tenants = [{"name": given.tenant, "where": given.where}]
        attributes = {"description": given.description, "table": given.table, "keys": [given.key], "tenants": tenants}
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(TenantTablesScaffolder)
class TenantTables(FeedComponent, TableComponent):
    """A table for each tenant, which always has the rows of another table for which the predicate of the tenant holds.

    Each is computed where the table has changed, by the strategy `incremental` of `SqlTable`.
    """

    tenants: list[Tenant] = Field(min_length=1, description="The tenants")
    exclusive: bool = Field(default=False, description="Check that no row of the table belongs to several tenants")
    complete: bool = Field(default=False, description="Check that every row of the table belongs to a tenant")

    @cached_property
    def tables(self) -> Sequence[ValidatedQuery]:
        """The table of each tenant, and its query.

        Raises:
            UnsafeDeclaration: the attributes contradict each other.
        """
        if self.freshness:
            raise UnsafeDeclaration("a tenant need not have new rows: set it for the table that they are of.", "freshness")
        names = [tenant.name.casefold() for tenant in self.tenants]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise UnsafeDeclaration(f"{self.tenants[number].name} is there twice.", "tenants", number, "name")
        return [self._table(number, tenant) for number, tenant in enumerate(self.tenants)]

    def _table(self, number: int, tenant: Tenant) -> ValidatedQuery:
        keys = tuple(self.keys)
        with in_field("tenants", number, "where"):
            query = self._query(tenant)
        with in_field("tenants", number, "name"):
            declaration = self.declared(
                name=f"{self.folder.name}_{tenant.name}",
                owner=tenant.owner or self.owner,
                columns=(),
                writer=Engine.SPARK,
                operations=frozenset({"MERGE"}),
                keys=keys,
                inferred=True,
            )
        return ValidatedQuery(declaration, query, Expectations((), keys), personal=self.personal)

    def _query(self, tenant: Tenant) -> TableQuery:
        followed = self.followed
        try:
            text = f"SELECT *\nFROM {table_name(str(followed))}\nWHERE ({tenant.where}\n)"
            query = TableQuery.parsed(text, "databricks", tenant.name)
        except InvalidDeclaration as error:
            raise UnsafeDeclaration(f"{tenant.where!r} is not a predicate: {error}") from error
        if [*query.inputs] != [followed]:
            raise UnsafeDeclaration(f"the predicate reads more than {followed}: it may only name columns of that table.")
        if names := nondeterministic(query):
            raise UnsafeDeclaration(f"the predicate has {names[0]}, which returns another value in each run: remove it.")
        return query

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`."""
        for table in self.tables:
            yield MarkedTable(table.declaration.table_name, query=table.query)

    @property
    def rewrites(self) -> str:
        """See `TableComponent`."""
        return "The strategy incremental updates and deletes rows"

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The tables of the tenants."""
        return [table.declaration for table in self.tables]

    def table_defs(self) -> dg.Definitions:
        """Return the tables and their checks."""
        followed = dg.AssetKey(self.followed.key_path(catalog_name()))
        assets = [self._asset(table, followed) for table in self.tables]
        checks = [self._check(followed)] if self.exclusive or self.complete else []
        return self.definitions(assets, checks, with_policies)

    def _check(self, followed: dg.AssetKey) -> dg.AssetChecksDefinition:
        """The checks of how many tenants the rows of the table have, at the table of the first one."""
        first = self.tables[0].declaration
        key, descriptions = asset_key(first), dict[str, str]()
        if self.exclusive:
            descriptions[_EXCLUSIVE] = "No row of the table belongs to several tenants."
        if self.complete:
            descriptions[_COMPLETE] = "Every row of the table belongs to a tenant."
        query = tenants_of_rows(table_name(str(self.followed)), [tenant.where for tenant in self.tenants])

        @dg.multi_asset_check(
            name=f"{first.layer}_{first.name}_tenants",
            specs=[
                check_spec(name, asset=key, additional_deps=[followed], description=text)
                for name, text in descriptions.items()
            ],
        )
        @in_one_line(first.table_name, lambda: self.personal.concerned(str(self.followed)))
        def check(spark: Spark) -> Iterator[dg.AssetCheckResult]:
            (found,) = spark.rows(spark.query(query))
            for name in descriptions:
                yield check_result(key, name, rows_of_tenants(name, found))

        return check

    @staticmethod
    def _asset(table: ValidatedQuery, followed: dg.AssetKey) -> dg.AssetsDefinition:
        shown = dg.MetadataValue.md(f"```sql\n{table.query.text}\n```")
        spec = table_spec(table.declaration, [followed]).merge_attributes(metadata={"query": shown})

        @dg.multi_asset(name=step_name(table.declaration), op_tags={SIDE_BY_SIDE: "spark"}, specs=[spec])
        @in_one_line(table.declaration.table_name, lambda: table.personal.concerned(table.declaration.table_name))
        def tenant_table(spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            yield from materialize_changes(spark, table)

        return tenant_table


def tenants_of_rows(table: str, predicates: Sequence[str]) -> str:
    """Return the query for how many rows of a table there are, and how many are of several tenants, and of none."""
    tenants = " + ".join(f"CAST(coalesce(({predicate}\n), false) AS INT)" for predicate in predicates)
    return (
        "SELECT count(*) AS rows, count_if(tenants > 1) AS several, count_if(tenants = 0) AS none\n"
        f"FROM (SELECT {tenants} AS tenants FROM {table})"
    )


def rows_of_tenants(name: str, found: Mapping[str, int]) -> Finding:
    """Return what the check of that name found, from the row of `tenants_of_rows`."""
    exclusive = name == _EXCLUSIVE
    number, whose = (found["several"], "several tenants") if exclusive else (found["none"], "no tenant")
    numbers = {"rows": found["rows"], f"rows of {whose}": number}
    if not number:
        right = "No row belongs to several tenants." if exclusive else "Every row belongs to a tenant."
        return Finding(True, right, numbers)
    belong = "belongs" if number == 1 else "belong"
    return Finding(False, f"{counted(number, 'row')} of {found['rows']:,} {belong} to {whose}.", numbers)
