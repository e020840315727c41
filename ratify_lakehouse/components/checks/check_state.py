"""Up to where a check has passed, so that its next evaluation compares only what is new.

A passed evaluation records the versions of the tables that it compared. The next one starts there, whoever has committed
since and whatever clocks say. After a failure it starts there too, so that a fault is found until it is gone. Where nothing
is recorded, where a table was created again, or where the run has the tag `FULL`, a check compares everything.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import dagster as dg

CHECKED = "checked to"
"""Metadata key of a passed evaluation: a position for each table, by its name."""

FULL = "ratify/checks"
"""Tag of a run in which every check compares everything: `ratify/checks: full`."""

_LOOKED_AT = 100


@dataclass(frozen=True)
class Position:
    """A version of a table. `table` is the table's id: one that is created again has another."""

    table: str
    version: int

    def reaches(self, earlier: "Position | None") -> bool:
        """Whether `earlier` is a version of the same table, no newer than this one."""
        return earlier is not None and earlier.table == self.table and earlier.version <= self.version


def recorded(positions: Mapping[str, Position]) -> dict[str, dg.JsonMetadataValue]:
    """Return the metadata that records positions."""
    return {CHECKED: dg.JsonMetadataValue({name: asdict(position) for name, position in positions.items()})}


def checked_to(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, name: str) -> dict[str, Position]:
    """Return the positions that the check's last passed evaluation recorded, by table; none if all is to be compared."""
    if context.run.tags.get(FULL) == "full":
        return {}
    for found in _evaluations(context, key, name):
        if found.passed and CHECKED in found.metadata:
            positions = cast("Mapping[str, Mapping[str, Any]]", found.metadata[CHECKED].value)
            return {table: Position(**position) for table, position in positions.items()}
    return {}


def last_recorded(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, name: str, metadata: str) -> Any:
    """Return the value of a metadata key of the check's last evaluation that has it, passed or not; None if none has."""
    found = (each.metadata[metadata].value for each in _evaluations(context, key, name) if metadata in each.metadata)
    return next(found, None)


def _evaluations(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, name: str) -> Iterator[dg.AssetCheckEvaluation]:
    """The last evaluations of a check, newest first."""
    storage = context.instance.event_log_storage
    for record in storage.get_asset_check_execution_history(dg.AssetCheckKey(key, name), limit=_LOOKED_AT):
        # In the history there are also the checks that are planned, as this one is.
        if isinstance(record.evaluation, dg.AssetCheckEvaluation):
            yield record.evaluation
