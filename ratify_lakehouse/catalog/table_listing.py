"""All tables of a catalog, as far as it shows them to the principal."""

from collections.abc import Mapping, Sequence

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

_OTHERS = {"information_schema"}


def stored_tables(catalog: UnityCatalog) -> Mapping[str, Sequence[str]]:
    """Return the columns of each table of the catalog, by schema.table. Views have no rows of their own.

    Raises:
        CatalogDenied, CatalogUnavailable, CatalogBusy: as for every call.
    """
    name = catalog.connection.name
    schemas = catalog.ask(f"list the schemas of {name}", lambda: list(catalog.client.schemas.list(name)))
    found = dict[str, Sequence[str]]()
    for schema in sorted({schema.name or "" for schema in schemas} - _OTHERS):
        tables = catalog.ask(
            f"list the tables of {schema}", lambda schema=schema: list(catalog.client.tables.list(name, schema))
        )
        for table in tables:
            if "VIEW" not in (table.table_type.value if table.table_type else ""):
                found[f"{schema}.{table.name}"] = [column.name or "" for column in table.columns or []]
    return found
