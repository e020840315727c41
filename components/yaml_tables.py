"""The tables of a package of folders, each with a `defs.yaml` that names a component."""

from collections import Counter
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import ModuleType

import dagster as dg

from components.landed_files_component import LandedFiles
from components.sql_table_component import SqlTable
from components.table_component import TableComponent
from ingest.file_source import Source
from resources.errors import InvalidDeclaration
from resources.settings import Settings
from resources.sql.table_query import TableName


class DeclaredTables:
    """The tables that are declared in the folders of a package."""

    def __init__(self, package: ModuleType) -> None:
        self._folder = Path(next(iter(package.__path__)))
        self._tree = dg.ComponentTree.from_module(package, self._folder.parent)

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Their assets and checks.

        Raises:
            InvalidDeclaration: a declaration is in no folder of its own in one of its schema, or names a table that another
                declares.
            ComponentTreeException: a declaration is wrong; its cause has the file, the line and the field.
        """
        tables = self._tree.get_all_components(of_type=TableComponent)
        for table in tables:
            if table.folder.parent.parent != self._folder:
                place = table.folder.relative_to(self._folder.parent)
                wanted = f"{self._folder.name}/<schema>/<table>/defs.yaml"
                raise InvalidDeclaration(f"{place}/defs.yaml: a table is declared in {wanted}; move it there.")
        folded = Counter(_name(table).casefold() for table in tables)
        if doubled := [_name(table) for table in tables if folded[_name(table).casefold()] > 1]:
            raise InvalidDeclaration(f"{' and '.join(doubled)} are one table: names ignore case. Rename one of the folders.")
        return dg.Definitions.merge(*(self._tree.build_defs(table.folder) for table in tables))

    def check_inputs(self, others: Collection[dg.AssetKey]) -> None:
        """Check that every input of a query is an asset of the project, of another catalog, or named as external.

        Args:
            others: Assets of the project that are not declared here.

        Raises:
            InvalidDeclaration: one is not; the error names the file and the line of the query.
        """
        catalog = Settings().unity_catalog
        known = {".".join(key.path).casefold(): ".".join(key.path[1:]) for key in (*others, *self.keys)}
        for table in self._tree.get_all_components(of_type=SqlTable):
            external = {name.casefold() for name in table.external}
            for name in table.query.inputs:
                of_project = name.full_name(catalog).casefold() in known or str(name).casefold() in external
                if not of_project and name.catalog in ("", catalog):
                    raise InvalidDeclaration(_unknown(table, name, known.values()))

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


def _name(table: TableComponent) -> str:
    return f"{table.folder.parent.name}.{table.folder.name}"


def _unknown(table: SqlTable, name: TableName, known: Collection[str]) -> str:
    near = get_close_matches(str(name), known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return (
        f"{'/'.join(table.query_file.parts[-3:])}, line {table.query.line_of(name)}: no asset of the project makes {name}."
        f"{meant} Name a table of other programs under `external`."
    )
