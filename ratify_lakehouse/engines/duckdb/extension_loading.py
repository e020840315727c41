"""DuckDB's extensions: loaded from installed wheels, and set up for a long-lived process that reads through the catalog."""

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from ratify_lakehouse.process_memory import limit_malloc_arenas
from ratify_lakehouse.sql.duckdb_sql import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LOADED_AS_THEY_ARE: Mapping[str, bool] = {"allow_unsigned_extensions": True, "autoinstall_known_extensions": False}
"""Of the configuration of an engine: its extensions are trusted as all code of installed wheels is, and none is downloaded.

Otherwise DuckDB hashes 140 MB of files to check their signatures, whenever an engine loads them: half a second of CPU time.
"""

_OF_THE_CATALOG = ("httpfs", "delta", "unity_catalog")
_RETRY_WAIT_MS = 200
_READ_PATIENCE_S = 6
"""Time for a catalog to restart."""


def load_extensions(con: "DuckDBPyConnection") -> None:
    """Load the extensions that read through the catalog; they repeat a request without an answer for some seconds."""
    limit_malloc_arenas()
    for name in _OF_THE_CATALOG:
        load_extension(con, name)
    _set_http_retries(con, _READ_PATIENCE_S)


def load_extension(con: "DuckDBPyConnection", name: str) -> None:
    """Load an extension from its wheel, where it lies: nothing is copied or downloaded."""
    import duckdb

    file = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    con.execute(f"LOAD {literal(str(file))}")


def _set_http_retries(con: "DuckDBPyConnection", seconds: int) -> None:
    """Let every connection of this engine repeat a request without an answer for this many seconds."""
    con.execute(f"SET GLOBAL http_retry_wait_ms = {_RETRY_WAIT_MS}")
    con.execute("SET GLOBAL http_retry_backoff = 1.0")
    con.execute(f"SET GLOBAL http_retries = {max(1, seconds * 1000 // _RETRY_WAIT_MS)}")
