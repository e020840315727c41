"""The SQLite file: durability settings, and its read and write transactions."""

import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, select

from ratify_lakehouse.embedded.catalog.managed_storage import S3
from ratify_lakehouse.embedded.catalog.server_settings import ACCESS_TOKEN_SECONDS, DROPPED_TABLE_SECONDS
from ratify_lakehouse.embedded.catalog.store import database_schema
from ratify_lakehouse.embedded.catalog.store.migrations import migrate


class Store:
    """Transactions over the catalog's SQLite file, which survives kill -9 at any moment.

    `default_root` is the URL of managed tables in catalogs without a storage root of their own, and `s3` how S3 is
    reached. `access_token_seconds` is the lifetime of the tokens of OAuth clients, `maintenance` what they may do to managed
    tables beyond commits of rows, and `dropped_table_seconds` how long a dropped one can be undropped.
    """

    def __init__(
        self,
        path: Path,
        default_root: str,
        *,
        access_token_seconds: int = ACCESS_TOKEN_SECONDS,
        s3: S3 | None = None,
        maintenance: Sequence[str] = (),
        dropped_table_seconds: int = DROPPED_TABLE_SECONDS,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.default_root = default_root
        self.access_token_seconds = access_token_seconds
        self.s3 = s3 or S3()
        self.maintenance = list(maintenance)
        self.dropped_table_seconds = dropped_table_seconds
        self._writer = threading.Lock()
        self._engine = _engine(path)
        with self.write() as tx:
            migrate(tx)
            self.metastore_id = _metastore_id(tx)

    @contextmanager
    def read(self) -> Generator[Connection]:
        """One consistent snapshot of the catalog."""
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction that is durable on return, and rolled back if the block raises.

        Writers of this process queue on a lock, because SQLite itself polls with growing sleeps. BEGIN IMMEDIATE
        excludes other processes, and a snapshot that is stale by the time of the write.
        """
        with self._writer, self._engine.connect() as connection:
            connection.execution_options(immediate=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close every connection; SQLite then folds the write-ahead log into the file."""
        self._engine.dispose()


def _engine(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=8, max_overflow=40)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        # Python's sqlite3 begins transactions implicitly and late; the `begin` event below does it instead.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _metastore_id(tx: Connection) -> str:
    found = tx.execute(select(database_schema.metastore.c.id)).scalar_one_or_none()
    if found is not None:
        return str(found)
    created = new_id()
    tx.execute(insert(database_schema.metastore).values(id=created))
    return created


def new_id() -> str:
    """A new random identity, as UUID text."""
    return str(uuid.uuid4())


def now_ms() -> int:
    """Wall-clock time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
