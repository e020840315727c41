"""What a sync keeps in tables of its own, beside the destination."""

from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS, accumulate, dead_letters
from ratify_lakehouse.components.syncs.deleted_keys import deleted_keys_table
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration
from ratify_lakehouse.components.syncs.sync_tables import SyncTables
from ratify_lakehouse.components.syncs.written_keys import written_keys_table


def tables_written(sync: SyncDeclaration, catalog: str) -> list[str]:
    """Return the full names of all tables that a sync writes to, the destination first.

    `catalog`: the catalog's name.
    """
    names = [DEAD_LETTERS.table_name]
    names += [f"ops.{written_keys_table(sync.name)}"] if sync.guards.tracked else []
    names += [f"ops.{deleted_keys_table(sync.name)}"] if sync.events else []
    return [sync.destination.full_name(catalog), *(f"{catalog}.{name}" for name in names)]


def unsettled(tables: SyncTables, sync: SyncDeclaration) -> bool:
    """Return whether rows of the last pass did not fit, which may fit now, and are read again."""
    return sync.row_errors is RowErrors.SKIP and not accumulate(sync) and dead_letters(tables, sync) > 0
