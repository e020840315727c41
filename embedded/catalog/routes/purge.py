"""Deletion of the files of dropped managed tables."""

from embedded.catalog.store import table_store
from embedded.catalog.store.catalog_database import Store


def purge_dropped(store: Store) -> None:
    """Delete the files that dropped managed tables left behind.

    Called after each drop and on start: files that cannot be deleted now are tried again later. The drop itself is
    committed, and does not fail.
    """
    with store.read() as tx:
        pending = table_store.pending_purges(tx)
    deleted = [location for location in pending if store.s3.delete_managed(location)]
    if deleted:
        with store.write() as tx:
            table_store.purged(tx, deleted)
