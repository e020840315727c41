"""Deletion of the files of managed tables that cannot be undropped any more."""

from ratify_lakehouse.embedded.catalog.store import dropped_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store, now_ms


def purge_dropped(store: Store) -> None:
    """Delete the files of tables that were dropped long enough ago, and what abandoned staging tables left behind.

    Called after each drop, on start and every hour: files that cannot be deleted now are tried again later. The drop itself
    is committed, and does not fail.
    """
    with store.write() as tx:
        dropped_store.expire(tx, now_ms() - store.dropped_table_seconds * 1000)
        pending = dropped_store.pending_purges(tx)
    deleted = [location for location in pending if store.s3.delete_managed(location)]
    if deleted:
        with store.write() as tx:
            dropped_store.purged(tx, deleted)
