"""Tables as their logs have them, read by a DuckDB without extensions: to load these takes a process a second."""

import re
from typing import Any

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.live_rows import live_rows
from ratify_lakehouse.sql.duckdb_sql import identifier

_TABLE = re.compile(r"\buc\.(\w+)\.(\w+)")


def read_live(duckdb: DuckDB, sql: str) -> list[tuple[Any, ...]]:
    """Run a query whose tables are `uc.<schema>.<table>` of the catalog `ratify`, without partitions."""
    with duckdb.session() as session:
        for schema, table in dict.fromkeys(_TABLE.findall(sql)):
            log = duckdb.log(f"ratify.{schema}.{table}")
            snapshot = log.refresh()
            with live_rows(session.con, log.storage, snapshot, log.files(snapshot)) as live:
                names = ", ".join(map(identifier, live.columns))
                session.con.execute(f"CREATE TEMP TABLE {schema}_{table} AS SELECT {names} FROM ({live.select()})")
        return session.con.execute(_TABLE.sub(r"\1_\2", sql)).fetchall()
