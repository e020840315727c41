"""What the components of tables share: a table is a folder `<schema>/<table>` with its `defs.yaml`."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Self

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr

from components.checks.check_definitions import files_check, history_checks
from resources.declarations import Column, TableDeclaration


class TableColumn(dg.Model, dg.Resolvable):
    """A column of the table."""

    name: str
    description: str = ""
    nullable: bool = Field(default=True, description="Whether the column may be NULL")
    pii: bool = Field(default=False, description="Personal data: previews leave the column out")


class TableComponent(dg.Component, dg.Model, dg.Resolvable):
    """A table of the catalog. Its folder's name is its own, and the folder around it is named after its schema."""

    description: str = Field(description="What a row is, for the catalog and the UI")
    owner: str = Field(default="data-platform", description="Team that is responsible for it")
    tags: dict[str, str] = Field(default={}, description="Tags of the asset")

    _folder: Path = PrivateAttr()

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Load the component from its `defs.yaml`, and remember its folder, after which the table is named."""
        component = super().load(attributes, context)
        component.place(Path(context.path))
        return component

    def place(self, folder: Path) -> None:
        """Give the component its folder, as `load` does."""
        self._folder = folder

    @property
    def folder(self) -> Path:
        """The folder with `defs.yaml` in it."""
        return self._folder

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
        )


def column(declared: TableColumn, type_text: str) -> Column:
    """Return a declared column with its type, in Spark SQL's words; empty where it is inferred."""
    return Column(declared.name, type_text, declared.description, nullable=declared.nullable, pii=declared.pii)


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
    every = [check for table in tables for check in (files_check(table), history_checks(table, replaceable))]
    materialized = [asset for asset in assets if isinstance(asset, dg.AssetsDefinition)]
    external = [asset for asset in assets if isinstance(asset, dg.AssetSpec)]
    return dg.Definitions(assets=[*external, *dg.map_asset_specs(policies, materialized)], asset_checks=[*checks, *every])
