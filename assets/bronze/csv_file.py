"""Read one landed file into a local table of text."""

import datetime as dt
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from assets.bronze.files.parse import Load, parse
from assets.bronze.sources import LOAD_COLUMNS, Source
from resources.duckdb import literal
from resources.tables import Column

if TYPE_CHECKING:
    import duckdb


def stage(con: "duckdb.DuckDBPyConnection", source: Source, path: str, local: Path, into: str) -> int:
    """Parse a file and add its records to a local table: the source's columns as text, then `_source_file`, `_source_row`.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        path: The file's name in the landing zone.
        local: Where its bytes are.
        into: Local table; it is left as it was if the file is refused.

    Returns:
        Number of records.

    Raises:
        BadFile: see files.parse.
    """
    columns = (*(Column(name, "string") for name in source.header), *LOAD_COLUMNS[:2])
    with tempfile.TemporaryDirectory(prefix="ratify-") as folder:
        parquet = Path(folder) / "parsed.parquet"
        parsed = parse(con, source, columns, path, local, parquet, Load(dt.datetime.now(dt.UTC), ""))
        con.execute(f"INSERT INTO {into} FROM read_parquet({literal(str(parquet))})")
    return parsed.rows
