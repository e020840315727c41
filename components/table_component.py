"""What the components of tables share: a table is a folder `<schema>/<table>` with its `defs.yaml`."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import dagster as dg
from pydantic import Field

from components.checks.check_definitions import files_check, freshness_check, history_checks
from components.checks.drift_check import drift_check
from components.declaration_places import in_field
from components.declared_care import DeclaredCare
from components.declared_component import DeclaredComponent
from components.declared_properties import check_properties
from components.personal_columns import MarkedTable
from resources.declarations import CHANGE_DATA_FEED, Column, Engine, TableDeclaration
from resources.delta.care_need import TableCare
from resources.errors import UnsafeDeclaration
from resources.sql.subject_match import KIND
from resources.table_layout import NO_LAYOUT, Layout


@dataclass(frozen=True)
class CaredTable:
    """A table, when and how it is cared for, and the tables that are computed from it."""

    declaration: TableDeclaration
    care: TableCare
    readers: tuple[TableDeclaration, ...] = ()


class TableColumn(dg.Model, dg.Resolvable):
    """A column of the table."""

    name: str = Field(description="Its name in the table")
    description: str = Field(default="", description="What it holds, for the catalog and the UI")
    nullable: bool = Field(default=True, description="Whether the column may be NULL")
    pii: bool | None = Field(
        default=None,
        description="Personal data: previews, examples and messages leave its values out. By default a column has some if "
        "one that it is computed from has, or if that is not known",
    )
    subject: str = Field(
        default="",
        pattern=f"^({KIND})?$",
        description="Kind of person or thing that its values identify, such as user; rows are found by it to be erased, and "
        "its values are shown nowhere, as with pii",
    )


class TableComponent(DeclaredComponent):
    """A table of the catalog. Its folder's name is its own, and the folder around it is named after its schema."""

    daily: bool = Field(default=False, description="Whether it gets new rows every day: else data_is_fresh fails")
    change_data_feed: bool = Field(
        default=False,
        description="Whether a new table records its changed rows, as they were and as they are",
    )
    table_properties: dict[str, str] = Field(
        default={},
        description="Properties of the table, such as catalog.team_name; `ratify drift` compares them",
    )
    partition_by: list[str] = Field(
        default=[],
        description="Columns by whose values the files of the table are divided; `ratify layout` rewrites one that exists",
    )
    cluster_by: list[str] = Field(
        default=[],
        description="Columns by which the rows of the files lie together, up to four; likewise",
    )
    care: DeclaredCare = Field(default=DeclaredCare(), description="From when on the job `care` compacts the table, and how")

    def declared_defs(self) -> dg.Definitions:
        """Return the assets of the table and their checks, and the one that `daily` asks for."""
        found = self.table_defs()
        check_properties(
            self.table_properties,
            feed=self.change_data_feed,
            rewrites=self.rewrites,
            replaces_files=bool(self.rewrites) and self.written[0].writer is Engine.DUCKDB,
        )
        self._check_layout()
        with in_field("care"):
            self.care.check(self.known_columns)
        if not self.daily:
            return found
        named = self.declared(columns=(), writer=Engine.SPARK, operations=frozenset(), inferred=True)
        return dg.Definitions.merge(found, dg.Definitions(asset_checks=[freshness_check(named)]))

    def _check_layout(self) -> None:
        known = self.known_columns
        for field in ("partition_by", "cluster_by"):
            for number, name in enumerate(getattr(self, field)):
                if known is not None and name not in known:
                    raise UnsafeDeclaration(
                        f"{name!r} is no column of the table, which has {', '.join(known)}.", field, number
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
    def cared(self) -> Iterable[CaredTable]:
        """The tables that its assets write, each with its care."""
        names = {table.name for table in self.written}
        for table in self.written:
            # The columns of a quarantine are others.
            is_quarantine = table.name.removesuffix("_quarantine") in names - {table.name}
            care = self.care.table_care(is_sorted=not is_quarantine)
            if (layout := table.layout).cluster_by and not care.sort:
                care = replace(care, sort=layout.cluster_by, z_order=layout.is_z_ordered)
            yield CaredTable(table, care)

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


def table_definitions(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    checks: Iterable[dg.AssetChecksDefinition],
    policies: Callable[[dg.AssetSpec], dg.AssetSpec],
    tables: Iterable[TableDeclaration],
    replaceable: str = "",
) -> dg.Definitions:
    """Return the definitions of a component: its assets with their policies, its checks, and those that every table has.

    Args:
        assets: The component's.
        checks: Those that only this component has.
        policies: Added to the spec of each asset that is materialized.
        tables: The tables that the assets write.
        replaceable: See `history_checks`.
    """
    every = [
        check for table in tables for check in (files_check(table), history_checks(table, replaceable), drift_check(table))
    ]
    materialized = [asset for asset in assets if isinstance(asset, dg.AssetsDefinition)]
    external = [asset for asset in assets if isinstance(asset, dg.AssetSpec)]
    return dg.Definitions(assets=[*external, *dg.map_asset_specs(policies, materialized)], asset_checks=[*checks, *every])
