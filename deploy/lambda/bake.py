"""Install DuckDB's extensions from their wheels into RATIFY_DUCKDB_EXTENSIONS, once, when the image is built."""

import os

import duckdb
import duckdb_extensions

connection = duckdb.connect(config={"extension_directory": os.environ["RATIFY_DUCKDB_EXTENSIONS"]})
for name in ("httpfs", "delta", "unity_catalog"):
    duckdb_extensions.import_extension(name, con=connection)
    # The build fails if an extension does not load.
    connection.execute(f"LOAD {name}")
