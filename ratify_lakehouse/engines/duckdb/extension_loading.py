"""DuckDB's extensions: loaded from installed wheels, and set up for a long-lived process that reads through the catalog."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratify_lakehouse.process_memory import limit_malloc_arenas
from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RETRY_WAIT_MS = 200


def load_extensions(con: "DuckDBPyConnection", names: Sequence[str], patience: int) -> None:
    """Load extensions that read through the catalog; a request without an answer is repeated for `patience` seconds."""
    limit_malloc_arenas()
    for name in names:
        load_extension(con, name)
    _set_http_retries(con, patience)


def load_extension(con: "DuckDBPyConnection", name: str) -> None:
    """Load an extension from its wheel: nothing is downloaded."""
    import duckdb_extensions  # pyright: ignore[reportMissingTypeStubs] it ships none

    Settings().duckdb_extensions.mkdir(parents=True, exist_ok=True)
    duckdb_extensions.import_extension(name, con=con)
    con.execute(f"LOAD {name}")


def _set_http_retries(con: "DuckDBPyConnection", seconds: int) -> None:
    """Let every connection of this engine repeat a request without an answer for this many seconds."""
    con.execute(f"SET GLOBAL http_retry_wait_ms = {_RETRY_WAIT_MS}")
    con.execute("SET GLOBAL http_retry_backoff = 1.0")
    con.execute(f"SET GLOBAL http_retries = {max(1, seconds * 1000 // _RETRY_WAIT_MS)}")
