"""DuckDB's extensions: loaded from installed wheels, and set up for a long-lived process that reads through the catalog."""

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING

from resources.settings import Settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RETRY_WAIT_MS = 200


def limit_malloc_arenas() -> None:
    """Limit glibc to two malloc arenas in this process. The Delta extension uses many threads, and each leaves memory in an
    arena of its own: 60 KB with every commit, without end."""
    m_arena_max = -8
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(m_arena_max, 2)


def load_extension(con: "DuckDBPyConnection", name: str) -> None:
    """Load an extension from its wheel: nothing is downloaded."""
    import duckdb_extensions  # pyright: ignore[reportMissingTypeStubs] it ships none

    Settings().duckdb_extensions.mkdir(parents=True, exist_ok=True)
    duckdb_extensions.import_extension(name, con=con)
    con.execute(f"LOAD {name}")


def set_http_retries(con: "DuckDBPyConnection", seconds: int) -> None:
    """Let every connection of this engine repeat a request without an answer for this many seconds."""
    con.execute(f"SET GLOBAL http_retry_wait_ms = {_RETRY_WAIT_MS}")
    con.execute("SET GLOBAL http_retry_backoff = 1.0")
    con.execute(f"SET GLOBAL http_retries = {max(1, seconds * 1000 // _RETRY_WAIT_MS)}")
