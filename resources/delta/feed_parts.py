"""How a range of versions of a change data feed is read across changes of the table's schema.

Delta reads a range with one schema: of a table with column mapping that of the range's end, of any other one the latest.
Where the schema changed otherwise than by new columns, it refuses that, or reads what a REPLACE removed as NULL. So the
range is divided, and the changes of versions that cannot be read so are found by comparing the rows before and after.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from resources.delta.row_changes import adds_rows, removes_rows
from resources.delta.table_log import TableLog
from resources.errors import LogUnreadable

_MAPPING = "delta.columnMapping.mode"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclass(frozen=True)
class FeedParts:
    """A range of versions.

    Attributes:
        ranges: First and last version of each part that the feed gives.
        compared: Versions whose changes are the difference to the version before.
    """

    ranges: tuple[tuple[int, int], ...]
    compared: tuple[int, ...]


def feed_parts(log: TableLog, first: int, last: int) -> FeedParts:
    """Divide a range of versions; `last` is the one that the log is as of.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    found = {version: _Version.of(log, version) for version in range(first, last + 1)}
    breaks = list(_breaks(log, found))
    mapped = log.properties.get(_MAPPING, "none") != "none"
    # A version that changes rows with the schema has them of both.
    compared = {version for version in breaks if found[version].changes_rows}
    if breaks and not mapped:
        compared |= {version for version in range(first, breaks[-1]) if found[version].changes_rows}
        begins = [breaks[-1]]
    else:
        begins = [first, *(version for version in breaks if version > first)]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    begins = [begin + (begin in compared) for begin in begins]
    return FeedParts(tuple((a, b) for a, b in zip(begins, ends, strict=True) if a <= b), tuple(sorted(compared)))


@dataclass(frozen=True)
class _Version:
    """What the log says of a version: its schema, if it sets one, and whether it changes rows."""

    schema: Mapping[str, Any] | None
    changes_rows: bool

    @classmethod
    def of(cls, log: TableLog, version: int) -> "_Version":
        actions = log.actions(version)
        schemas = [json.loads(action["metaData"]["schemaString"]) for action in actions if "metaData" in action]
        return cls(schemas[-1] if schemas else None, any(adds_rows(each) or removes_rows(each) for each in actions))


def _breaks(log: TableLog, found: Mapping[int, _Version]) -> Iterator[int]:
    """The versions that change the schema other than by new columns, oldest first."""
    known = None
    for version, each in found.items():
        if each.schema is None:
            continue
        if known is None:
            known = _schema_before(log, version)
        # What is not known may have been any schema. One that changes no row breaks nothing that is read here.
        if not _extends(known, each.schema) if known else each.changes_rows and version > 0:
            yield version
        known = each.schema


def _schema_before(log: TableLog, version: int) -> Mapping[str, Any] | None:
    for earlier in range(version - 1, -1, -1):
        try:
            actions = log.actions(earlier)
        except LogUnreadable:
            return None
        for action in actions:
            if "metaData" in action:
                return json.loads(action["metaData"]["schemaString"])
    return None


def _extends(old: Any, new: Any) -> bool:
    """Whether a type of Delta's schema has all that another one has, and perhaps more fields."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old == new
    one, other = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    if one["type"] != other["type"]:
        return False
    if one["type"] != "struct":
        parts = ("elementType", "keyType", "valueType")
        return all(_extends(one[part], other[part]) for part in parts if part in one)
    fields, had = ({field["name"]: field for field in each["fields"]} for each in (other, one))
    added = [field for name, field in fields.items() if name not in had]
    same = all(name in fields and _same_field(field, fields[name]) for name, field in had.items())
    return same and all(field["nullable"] for field in added)


def _same_field(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    physical = [field["metadata"].get(_PHYSICAL_NAME, field["name"]) for field in (old, new)]
    return physical[0] == physical[1] and (new["nullable"] or not old["nullable"]) and _extends(old["type"], new["type"])
