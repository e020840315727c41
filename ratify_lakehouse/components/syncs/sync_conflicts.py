"""Declarations of syncs that would undo each other's work, or that of an asset."""

from collections.abc import Collection, Sequence
from pathlib import Path

from ratify_lakehouse.components.declaration_places import located
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.settings import catalog_name


def check_writers(syncs: Sequence[tuple[Path, SyncDeclaration]], made: Collection[str]) -> None:
    """Check that no sync writes to a table that an asset makes, or deletes the rows that another one writes.

    Args:
        syncs: The folders and the syncs of a project.
        made: Full names, in lower case, of the tables that its assets make.

    Raises:
        InvalidDeclaration: one does.
    """
    catalog, seen = catalog_name(), dict[str, SyncDeclaration]()
    for folder, sync in syncs:
        name, into = sync.destination.full_name(catalog).casefold(), sync.destination
        with located(folder / "defs.yaml"):
            if name in made:
                raise UnsafeDeclaration(
                    f"{into} is made by an asset of the project, which would undo what the sync writes: use another table.",
                    *("destination", "table"),
                )
            other = seen.setdefault(name, sync)
            if other is not sync and (deleting := next(filter(_deletes_others, (sync, other)), None)):
                raise UnsafeDeclaration(
                    f"the syncs {sync.name} and {other.name} write to {into}, and {deleting.name} deletes all rows that its "
                    "own source does not have. Give it `delete: {tracked: true}` or a `scope`, or write to another table.",
                    "strategy",
                )


def _deletes_others(sync: SyncDeclaration) -> bool:
    guards = sync.guards
    return sync.strategy is SyncStrategy.FULL or (
        sync.strategy is SyncStrategy.MIRROR and not (guards.tracked or guards.scope)
    )
