"""Columns added to a table: the commit that does it, and how the catalog is notified of the new schema."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ratify_lakehouse.column_types import delta_field, sql_type, type_of_delta
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.delta.commit_actions import NothingToCommit, Proposal
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.errors import UnsafeTable


def columns_of(snapshot: Snapshot) -> tuple[Column, ...]:
    """Return the columns of a table, in table order."""
    return tuple(
        Column(field["name"], type_of_delta(field["type"]).spark, nullable=field["nullable"]) for field in snapshot.fields
    )


def columns_added(snapshot: Snapshot, columns: Sequence[Column]) -> Proposal:
    """Return the proposal that adds the columns that a table lacks, after its own.

    Raises:
        UnsafeTable: it has one of them, with another type, or lacks one that may not be NULL.
        NothingToCommit: it has all of them.
    """
    existing = {field["name"].lower(): type_of_delta(field["type"]) for field in snapshot.fields}
    for column in columns:
        if existing.get(column.name.lower(), wanted := sql_type(column.type)) != wanted:
            found = existing[column.name.lower()]
            raise UnsafeTable(
                f"{snapshot.full_name}, column {column.name}: it is {found.spark}, and {wanted.spark} is to be added."
            )
    new = [column for column in columns if column.name.lower() not in existing]
    if not new:
        raise NothingToCommit
    for column in new:
        if not column.nullable:
            raise UnsafeTable(
                f"{snapshot.full_name}, column {column.name}: existing rows have no value for it, so it cannot be added "
                "as NOT NULL. Declare it as nullable."
            )
    schema = json.loads(snapshot.metadata["schemaString"])
    added = [_field(column) for column in new]
    schema["fields"] += added
    for_catalog = [*snapshot.fields, *map(catalog_column, added)]
    return Proposal(
        operation="ADD COLUMNS",
        parameters={"columns": json.dumps([{"column": {"name": column.name, "type": column.type}} for column in new])},
        metadata=(
            {**snapshot.metadata, "schemaString": json.dumps(schema)},
            [{"action": "set-columns", "columns": {"type": "struct", "fields": for_catalog}}],
        ),
    )


def _field(column: Column) -> dict[str, Any]:
    field = delta_field(column.name, sql_type(column.type))
    return field | {"metadata": {"comment": column.comment}} if column.comment else field


def catalog_column(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a column of Delta's schema as the catalog's API spells it: `element-type` where the log has `elementType`."""
    return _with_dashes(dict(field))


def _with_dashes(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_dashes(inner) for inner in cast("list[Any]", part)]
    if isinstance(part, dict):
        named = cast("dict[str, Any]", part)
        # The metadata of a column have keys of their own.
        return {
            re.sub(r"([A-Z])", lambda c: "-" + c[1].lower(), key): inner if key == "metadata" else _with_dashes(inner)
            for key, inner in named.items()
        }
    return part
