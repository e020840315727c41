"""Tables of the attached catalog that a query names: some of them DuckDB reads wrong, without an error."""

import re
from collections.abc import Iterable

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.table_features import Use, refuse
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.duckdb_sql import identifier

ALIAS = "uc"
"""The name under which the catalog is attached."""

_NAME = r'("(?:[^"]|"")+"|\w+)'
_OF_CATALOG = re.compile(rf'(?<![\w."])"?{ALIAS}"?\s*\.\s*{_NAME}\s*\.\s*{_NAME}', re.IGNORECASE)
_OF_SCHEMA = re.compile(rf"(?<![\w.\"]){_NAME}\s*\.\s*{_NAME}")
_UNQUALIFIED = re.compile(rf"\b(?:FROM|JOIN|TABLE|DESCRIBE|SUMMARIZE)\s+{_NAME}(?!\s*[.(])", re.IGNORECASE)


def attached(table: str) -> str:
    """Return DuckDB's name of a table of the catalog, given as schema.table, with each part quoted."""
    return f"{ALIAS}.{'.'.join(map(identifier, table.split('.')))}"


class ReadableTables:
    """The tables that a session may read: those it has looked up since it attached the catalog, whose versions it keeps.

    Names are found in the text, not in a parsed query: DuckDB's parser does not give them for each statement that it runs. A
    name too many is one that the catalog does not know.
    """

    def __init__(self, catalog: UnityCatalog) -> None:
        self._catalog = catalog
        self._checked = set[tuple[str, str]]()

    def forget(self) -> None:
        """Look all tables up again: the session sees other versions from now on."""
        self._checked.clear()

    def check(self, sql: str) -> None:
        """Check the tables that a statement names by the catalog, `uc.schema.table`.

        Raises:
            UnsafeTable: DuckDB would read one of them wrong.
            CatalogUnavailable, CatalogDenied.
        """
        self._check(_named(_OF_CATALOG, sql))

    def check_in_catalog(self, sql: str) -> None:
        """Check those of a statement that runs in the catalog, where names go without it, and some without a schema.

        Raises:
            As `check`.
        """
        schemas = self._catalog.schemas()
        self._check((schema, table) for schema, table in _named(_OF_SCHEMA, sql) if schema.casefold() in schemas)
        default = self._catalog.default_schema()
        self._check((default, table) for (table,) in _named(_UNQUALIFIED, sql))

    def _check(self, names: Iterable[tuple[str, ...]]) -> None:
        for schema, table in names:
            if (known := (schema.casefold(), table.casefold())) in self._checked:
                continue
            full_name = f"{self._catalog.connection.name}.{schema}.{table}"
            try:
                found = self._catalog.table(full_name)
            except TableMissing:
                # It is none, or DuckDB says so.
                continue
            partitions = [column.name or "" for column in found.columns or [] if column.partition_index is not None]
            refuse(full_name, found.properties or {}, partitions, Use.QUERY)
            self._checked.add(known)


def _named(pattern: re.Pattern[str], sql: str) -> list[tuple[str, ...]]:
    names = dict.fromkeys(match.groups() for match in pattern.finditer(sql))
    return [tuple(name[1:-1].replace('""', '"') if name.startswith('"') else name for name in each) for each in names]
