"""Deletion of the files of dropped managed tables."""

import logging
import shutil

from embedded.catalog.names import managed_path
from embedded.catalog.store import tables
from embedded.catalog.store.database import Store

_log = logging.getLogger(__name__)


def purge_dropped(store: Store) -> None:
    """Delete what dropped managed tables left behind.

    Called after each drop and on start: a directory that cannot be deleted now is tried again then, and never fails
    the drop, which has already happened.
    """
    with store.read() as tx:
        pending = tables.pending_purges(tx)
    gone = [location for location in pending if _delete(location)]
    if gone:
        with store.write() as tx:
            tables.purged(tx, gone)


def _delete(location: str) -> bool:
    path = managed_path(location)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        # Never written, or another request is deleting it at this moment: then that one, or the next, will say so.
        return not path.exists()
    except OSError as error:
        _log.warning("cannot delete %s yet, will try again: %s", location, error)
        return False
    return True
