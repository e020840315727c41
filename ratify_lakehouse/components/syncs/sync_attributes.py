"""Attributes of a sync that contradict each other, as far as that is known without its source and its destination."""

from collections.abc import Sequence

from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.declared_history import FollowedHistory
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncDeclaration, SyncStrategy
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.row_history import CURRENT, VALID_FROM, VALID_TO


def check_source(named: str, *, engine: str, format_: str) -> None:
    """Check that nothing is said of a source that it does not have.

    Args:
        named: Which it is: table, sql or file.
        engine: What runs its query.
        format_: Of its file.

    Raises:
        UnsafeDeclaration: something is.
    """
    if engine != "spark" and named != "sql":
        raise UnsafeDeclaration("only a query, `sql`, has it: remove it.", "source", "engine")
    if format_ and named != "file":
        raise UnsafeDeclaration("only a file has it: remove it.", "source", "format")


def check_columns(sync: SyncDeclaration) -> None:
    """Check that a sync writes the columns that it goes by.

    Raises:
        UnsafeDeclaration: it does not.
    """
    names = [column.name.casefold() for column in sync.columns]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UnsafeDeclaration(f"{sync.columns[number].name!r} is there twice.", "columns", number, "name")
    if sync.strategy is SyncStrategy.SCD2:
        _check_history(sync)
    if sync.events:
        _check_events(sync.events, sync.keys)
    if not sync.only_mapped:
        return
    if not names:
        raise UnsafeDeclaration("no column is named under `columns`, so none would be written.", "only_columns")
    needed: list[tuple[Sequence[str], str]] = [
        *((("keys",), name) for name in sync.keys),
        *((("unique", "latest"), name) for name in sync.latest),
        *((("delete", "scope"), name) for name in sync.guards.scope),
        *([(("events", "sequence_by"), sync.events.sequence_by)] if sync.events else []),
        *([(("history", "updated_at"), sync.history.updated_at)] if sync.history.updated_at else []),
    ]
    for place, name in needed:
        if name.casefold() not in names:
            raise UnsafeDeclaration(f"{name!r} is not among `columns`, and `only_columns` writes no others.", *place)


def _check_history(sync: SyncDeclaration) -> None:
    for place, given in (("columns", [column.name for column in sync.columns]), ("keys", sync.keys)):
        for number, name in enumerate(given):
            if name.casefold() in (VALID_FROM, VALID_TO, CURRENT):
                where = (place, number, "name") if place == "columns" else (place,)
                raise UnsafeDeclaration(f"{name} is a column that the strategy scd2 adds.", *where)
    with in_field("history"):
        rules = sync.history
        followed = FollowedHistory(
            updated_at=rules.updated_at.casefold(), ignore=[each.casefold() for each in rules.ignored]
        )
        followed.row_history([key.casefold() for key in sync.keys], "keys")


def _check_events(events: ChangeEvents, keys: Sequence[str]) -> None:
    folded = {key.casefold() for key in keys}
    for field, name in (("operation", events.operation), ("sequence_by", events.sequence_by)):
        if name.casefold() in folded:
            raise UnsafeDeclaration(f"{name!r} is a key, so each event would have a row of its own.", "events", field)
    if events.operation.casefold() == events.sequence_by.casefold():
        raise UnsafeDeclaration(
            f"{events.sequence_by!r} says what happened: it cannot order the events.", "events", "sequence_by"
        )
    if both := [each for each in events.apply_as_truncates if each in events.apply_as_deletes]:
        raise UnsafeDeclaration(
            f"{both[0]!r} is among `apply_as_deletes`, too: it cannot be both.", "events", "apply_as_truncates"
        )
