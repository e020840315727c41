"""The names of a table's columns: those that they have, those that they had, and those of its files."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ratify_lakehouse.delta.snapshot import Json, Snapshot

_PHYSICAL = "delta.columnMapping.physicalName"


def has_mapping(snapshot: Snapshot) -> bool:
    """Return whether the columns of a table may have other names in its files."""
    return snapshot.properties.get("delta.columnMapping.mode", "none") != "none"


@dataclass(frozen=True)
class ColumnNames:
    """Columns of a version of a table.

    Attributes:
        types: Delta's types, by name.
        in_files: Names in the files, by name: others with column mapping.
        former: Present names, by names that the log still knows from before.
    """

    types: Mapping[str, object]
    in_files: Mapping[str, str]
    former: Mapping[str, str]

    def present(self, name: str) -> str | None:
        """Return the name that a column has now, maybe another one than before; None if it is gone. Case is ignored."""
        names = {each.casefold(): each for each in self.types}
        return names.get(name.casefold()) or self.former.get(name.casefold())


def column_names(snapshot: Snapshot, earlier: Iterable[Json]) -> ColumnNames:
    """Return the names of a table's columns.

    Args:
        snapshot: The version.
        earlier: The `metaData` actions that the log still has.
    """
    fields = _fields(snapshot.metadata)
    in_files = {field["name"]: _physical(field) for field in fields}
    present = {name: logical for logical, name in in_files.items()}
    # A table that got column mapping later has the names of its files from before.
    former = {name.casefold(): logical for name, logical in present.items()}
    for metadata in earlier:
        for field in _fields(metadata):
            if logical := present.get(_physical(field)):
                former.setdefault(field["name"].casefold(), logical)
    return ColumnNames({field["name"]: field["type"] for field in fields}, in_files, former)


def _fields(metadata: Json) -> list[Json]:
    return json.loads(metadata.get("schemaString") or '{"fields": []}')["fields"]


def _physical(field: Json) -> str:
    metadata: Json = field.get("metadata") or {}
    return metadata.get(_PHYSICAL) or field["name"]
