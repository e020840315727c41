"""Load DuckDB's extensions as the function does, so that an image in which one is missing is not built."""

import duckdb

from ratify_lakehouse.engines.duckdb.extension_loading import LOADED_AS_THEY_ARE, load_extensions

with duckdb.connect(config=dict(LOADED_AS_THEY_ARE)) as connection:
    load_extensions(connection)
