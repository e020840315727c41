"""A process that appends orders to one table by DuckDB, as fast as it can, and keeps a ledger of what was committed."""

import json
import random
import sys
from pathlib import Path

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import AlreadyLoaded, RatifyError
from ratify_lakehouse.proof.proof_tables import ORDERS

KEYS = 1_000_000
"""Keys that each writer has for itself: writer n begins at n * KEYS."""


def orders_like(name: str) -> TableDeclaration:
    """A table with the columns of orders, in a schema of which the proof knows nothing."""
    return TableDeclaration("bronze", name, ORDERS.columns, "of a test", Engine.DUCKDB, frozenset({"WRITE"}))


def orders_select(writer: str, first: int, rows: int, source: str) -> str:
    """Rows with successive keys that carry their writer's name, from a table of `id`, in any engine's SQL."""
    return (
        f"SELECT CAST({first} + id AS BIGINT) AS o_orderkey, CAST(id % 1500 + 1 AS BIGINT) AS o_custkey, "
        "'O' AS o_orderstatus, "
        "CAST(id % 1000 AS DECIMAL(15,2)) AS o_totalprice, DATE '2026-01-01' AS o_orderdate, '3-MEDIUM' AS o_orderpriority, "
        f"'{writer}' AS o_clerk, 0 AS o_shippriority, 'of {writer}' AS o_comment FROM {source}"
    )


def main(task_file: str) -> None:
    """Append until the file is there that the task names; each line of the ledger is the rows of one ratified append."""
    task = json.loads(Path(task_file).read_text())
    table, number = orders_like(task["table"]), task["number"]
    ledger, stop = Path(task["ledger"]), Path(task["stop"])
    chance = random.Random(number)  # noqa: S311 sizes of appends, not keys
    engine = DuckDB(catalog=UnityCatalog(), threads=1)
    written = 0
    while not stop.exists():
        rows = chance.randint(1, 200)
        select = orders_select(f"duckdb-{number}", number * KEYS, rows, f"range({written}, {written + rows}) AS r(id)")
        while True:
            try:
                with engine.session() as session:
                    session.append(table, select, [f"{number}-{written}"])
            except AlreadyLoaded:
                break
            except RatifyError as error:
                print(type(error).__name__, error, flush=True)
            else:
                break
        written += rows
        with ledger.open("a") as file:
            file.write(f"{rows}\n")
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
