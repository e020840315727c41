"""Locations of tables and managed storage, no two of which may overlap. Every function runs in the given transaction."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, or_, select

from embedded.catalog.api_errors import InvalidParameterError
from embedded.catalog.object_names import ancestors
from embedded.catalog.store.database_schema import catalogs, schemas, tables


def refuse_overlap(tx: Connection, location: str) -> None:
    """Raises InvalidParameterError when a table is at, above or below `location`, or managed storage at or below it."""
    at_or_above = tables.c.location.in_(ancestors(location))
    if _found(tx, tables.c.location, or_(at_or_above, _below(tables.c.location, location))):
        raise InvalidParameterError(f"Location {location} overlaps with that of another table.")
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
