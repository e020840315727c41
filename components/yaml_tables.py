"""The tables of a package of folders, each with a `defs.yaml` that names a component."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType

import dagster as dg

from components.landed_files_component import LandedFiles
from components.table_component import TableComponent
from ingest.file_source import Source


class DeclaredTables:
    """The tables that are declared in the folders of a package."""

    def __init__(self, package: ModuleType) -> None:
        self._tree = dg.ComponentTree.from_module(package, Path(next(iter(package.__path__))).parent)

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Their assets and checks."""
        tables = self._tree.get_all_components(of_type=TableComponent)
        return dg.Definitions.merge(*(self._tree.build_defs(table.folder) for table in tables))

    @cached_property
    def sources(self) -> Sequence[Source]:
        """Their kinds of landed files."""
        return [component.source for component in self._tree.get_all_components(of_type=LandedFiles)]

    @cached_property
    def keys(self) -> Sequence[dg.AssetKey]:
        """Their keys."""
        materialized = (asset for asset in self.definitions.assets or () if isinstance(asset, dg.AssetsDefinition))
        return [key for asset in materialized for key in asset.keys]

    @cached_property
    def checks(self) -> Sequence[dg.AssetCheckKey]:
        """Their checks, but for their expectations, which run with the tables."""
        checks = (check for check in self.definitions.asset_checks or () if isinstance(check, dg.AssetsDefinition))
        return [key for check in checks for key in check.check_keys]
