"""Deletion of the files of dropped managed tables."""

from embedded.catalog.store import table_store
from embedded.catalog.store.catalog_database import Store


def purge_dropped(store: Store) -> None:
    """Delete what dropped managed tables left behind.

    Called after each drop and on start: what cannot be deleted now is tried again then, and never fails the drop,
    which has already happened.
    """
    with store.read() as tx:
        pending = table_store.pending_purges(tx)
    gone = [location for location in pending if store.s3.delete_managed(location)]
    if gone:
        with store.write() as tx:
            table_store.purged(tx, gone)
