"""Locations of tables, dropped ones too, and managed storage: no two overlap. Every function runs in the transaction."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, or_, select

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError
from ratify_lakehouse.embedded.catalog.object_names import ancestors
from ratify_lakehouse.embedded.catalog.store.database_schema import (
    catalogs,
    dropped_tables,
    purges,
    schemas,
    staging_tables,
    tables,
)

# Whoever holds the files: those of dropped tables stay until they are deleted, and their catalog or schema may be gone.
_LOCATIONS = (tables.c.location, staging_tables.c.location, dropped_tables.c.location, purges.c.location)


def refuse_overlap(tx: Connection, location: str) -> None:
    """Raises InvalidParameterError when a table is at, above or below `location`, or managed storage at or below it."""
    for held in _LOCATIONS:
        if _found(tx, held, or_(held.in_(ancestors(location)), _below(held, location))):
            raise InvalidParameterError(
                f"Location {location} overlaps with that of another table, which may be a dropped one."
            )
    for root in (catalogs.c.storage_root, schemas.c.storage_root):
        if _found(tx, root, or_(root == location, _below(root, location))):
            raise InvalidParameterError(f"Location {location} overlaps with managed storage.")


def refuse_root_in_table(tx: Connection, root: str) -> None:
    """Raises InvalidParameterError when managed storage would be inside a table."""
    if _found(tx, tables.c.location, tables.c.location.in_(ancestors(root))):
        raise InvalidParameterError(f"Storage root {root} is inside a table.")


def _below(column: Any, location: str) -> ColumnElement[bool]:
    # "0" is the character after "/": a range, for which the index serves, as it would not for LIKE.
    return (column > f"{location}/") & (column < f"{location}0")


def _found(tx: Connection, column: Any, condition: ColumnElement[bool]) -> bool:
    return tx.execute(select(column).where(condition).limit(1)).first() is not None
