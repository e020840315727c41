"""What the components of tables share: a table is a folder `<schema>/<table>` with its `defs.yaml`."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.checks.check_definitions import freshness_check, table_checks
from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.declared_freshness import Freshness
from ratify_lakehouse.components.declared_maintenance import DeclaredMaintenance
from ratify_lakehouse.components.declared_properties import check_properties
from ratify_lakehouse.components.personal_columns import MarkedTable
from ratify_lakehouse.declarations import CHANGE_DATA_FEED, Column, Engine, TableDeclaration
from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.subject_match import KIND
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout


@dataclass(frozen=True)
class MaintainedTable:
    """A table, when and how it is maintained, and the tables that are computed from it."""

    declaration: TableDeclaration
    maintenance: TableMaintenance
    readers: tuple[TableDeclaration, ...] = ()


class TableColumn(dg.Model, dg.Resolvable):
    """A column of the table."""

    name: str = Field(description="Its name in the table")
    description: str = Field(default="", description="Description for the catalog and the UI")
    nullable: bool = Field(default=True, description="Whether the column may be NULL")
    pii: bool | None = Field(
        default=None,
        description="Personal data, left out of previews, examples and messages. By default as the columns it is "
        "computed from; true if these are unknown",
    )
    subject: str = Field(
        default="",
        pattern=f"^({KIND})?$",
        description="Kind of person or thing that its values identify, such as user: `ratify erase` finds rows by it. "
        "Its values are hidden, as with pii",
    )


class TableComponent(DeclaredComponent):
    """A table of the catalog. Its folder's name is its own, and the folder around it is named after its schema."""

    freshness: Freshness | None = Field(
        default=None,
        description="How old its last new rows may be, for the check data_is_fresh; by default there is no check",
    )
    change_data_feed: bool = Field(
        default=False,
        description="Record changed rows, before and after, in a new table",
    )
    table_properties: dict[str, str] = Field(
        default={},
        description="Properties of the table, such as catalog.team_name; `ratify drift` compares them",
    )
    partition_by: list[str] = Field(
        default=[],
        description="Columns that partition the files; `ratify layout` rewrites an existing table",
    )
    cluster_by: list[str] = Field(
        default=[],
        description="Up to four columns to cluster rows by; `ratify layout` rewrites an existing table",
    )
    maintenance: DeclaredMaintenance = Field(
        default=DeclaredMaintenance(), description="When the job `maintenance` compacts the table, and how"
    )

    def declared_defs(self) -> dg.Definitions:
        """Return the assets of the table and their checks, and the one that `freshness` asks for."""
        checks = self._freshness_checks()
        found, of = self.table_defs(), self.written[0]
        check_properties(
            self.table_properties,
            feed=self.change_data_feed,
            rewrites=self.rewrites,
            replaces_files=bool(self.rewrites) and of.writer is Engine.DUCKDB and "MERGE" not in of.operations,
        )
        self._check_layout()
        with in_field("maintenance"):
            self.maintenance.check(self.known_columns)
        return dg.Definitions.merge(found, dg.Definitions(asset_checks=checks))

    def _freshness_checks(self) -> list[dg.AssetChecksDefinition]:
        if not self.freshness:
            return []
        with in_field("freshness"):
            limits = self.freshness.limits()
        named = self.declared(columns=(), writer=Engine.SPARK, operations=frozenset(), inferred=True)
        return [freshness_check(named, *limits)]

    def _check_layout(self) -> None:
        known = self.known_columns
        for field in ("partition_by", "cluster_by"):
            for number, name in enumerate(getattr(self, field)):
                if known is not None and name not in known:
                    raise UnsafeDeclaration(
                        f"{name!r} is not a column of the table, which has {', '.join(known)}.", field, number
                    )

    @property
    def rewrites(self) -> str:
        """What updates or deletes rows of the table, as the beginning of a sentence; empty if nothing does."""
        return ""

    @property
    @abstractmethod
    def written(self) -> Sequence[TableDeclaration]:
        """The tables that its assets write."""

    @property
    def known_columns(self) -> Collection[str] | None:
        """The columns of the table; None where not all of them are declared."""
        table = self.written[0]
        return None if table.inferred else table.column_names

    @property
    def maintained(self) -> Iterable[MaintainedTable]:
        """The tables that its assets write, each with its maintenance."""
        names = {table.name for table in self.written}
        for table in self.written:
            # The columns of a quarantine are others.
            is_quarantine = table.name.removesuffix("_quarantine") in names - {table.name}
            maintenance = self.maintenance.table_maintenance(is_sorted=not is_quarantine)
            if (layout := table.layout).cluster_by and not maintenance.sort:
                maintenance = replace(maintenance, sort=layout.cluster_by, z_order=layout.is_z_ordered)
            yield MaintainedTable(table, maintenance)

    @abstractmethod
    def table_defs(self) -> dg.Definitions:
        """Return the assets of the table and their checks."""

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`: the tables that it writes have personal data where they are declared to."""
        for table in self.written:
            yield MarkedTable(table.table_name, table.columns, table.personal)

    @property
    def declared(self) -> Callable[..., TableDeclaration]:
        """`TableDeclaration` without its columns, writer and operations."""
        return partial(
            TableDeclaration,
            layer=self.folder.parent.name,
            name=self.folder.name,
            comment=self.description,
            owner=self.owner,
            tags=self.tags,
            properties=self.properties,
            layout=Layout(tuple(self.partition_by), tuple(self.cluster_by)),
        )

    @property
    def properties(self) -> dict[str, str]:
        """Properties that the table is created with."""
        return self.table_properties | ({CHANGE_DATA_FEED: "true"} if self.change_data_feed else {})

    def declared_columns(self, columns: Sequence[TableColumn], types: Sequence[str]) -> tuple[Column, ...]:
        """Return declared columns with their types, in Spark SQL's words; empty where one is inferred.

        Raises:
            UnsafeDeclaration: other engines could not read one of them.
        """
        made = list[Column]()
        for number, (column, type_text) in enumerate(zip(columns, types, strict=True)):
            marks = {"nullable": column.nullable, "pii": column.pii, "subject": column.subject}
            made.append(Column(column.name, type_text, column.description, **marks))
            with in_field("columns", number):
                only = {"writer": Engine.SPARK, "operations": frozenset[str](), "inferred": True}
                self.declared(columns=(made[-1],), layout=NO_LAYOUT, **only)
        return tuple(made)

    def definitions(
        self,
        assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
        checks: Iterable[dg.AssetChecksDefinition],
        policies: Callable[[dg.AssetSpec, Freshness | None], dg.AssetSpec],
        replaceable: str = "",
        *,
        reported: bool = True,
    ) -> dg.Definitions:
        """Return the component's definitions: its assets with their policies, its checks, and those that every table has.

        Args:
            assets: The component's.
            checks: Those that only this component has.
            policies: Added to the spec of each asset that is materialized, with the declared freshness.
            replaceable: See `table_checks`.
            reported: Likewise.
        """
        every = [table_checks(table, replaceable, reported=reported) for table in self.written]
        materialized = [asset for asset in assets if isinstance(asset, dg.AssetsDefinition)]
        external = [asset for asset in assets if isinstance(asset, dg.AssetSpec)]
        mapped = dg.map_asset_specs(lambda spec: policies(spec, self.freshness), materialized)
        return dg.Definitions(assets=[*external, *mapped], asset_checks=[*checks, *every])
