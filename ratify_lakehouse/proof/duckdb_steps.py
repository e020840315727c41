"""What DuckDB does in the proof: reads and joins, INSERT of values and INSERT … SELECT."""

from typing import Any

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.table_version import version_of_load
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDBSession
from ratify_lakehouse.errors import AlreadyLoaded
from ratify_lakehouse.proof.proof_ledger import ProofEntry, Run
from ratify_lakehouse.proof.proof_rows import BY_QUERY, BY_QUERY_DELETED, BY_VALUES, LOADED, values
from ratify_lakehouse.proof.proof_tables import ORDERS, TABLES
from ratify_lakehouse.proof.row_digest import Block, DigestPart, by_duckdb
from ratify_lakehouse.settings import TPCH

_ORDERS = f"{ALIAS}.{TPCH}.{ORDERS.name}"


def read(session: DuckDBSession) -> dict[str, Any]:
    """Count each table, and join two of them; return rows by table, and the nation with the most customers."""
    session.attach()
    counts = {name: session.count(table) for name, table in TABLES.items()}
    (most,) = session.rows(
        f"SELECT n_name, count(*) FROM {ALIAS}.{TPCH}.customer JOIN {ALIAS}.{TPCH}.nation ON c_nationkey = n_nationkey "
        "GROUP BY n_name ORDER BY count(*) DESC, n_name LIMIT 1"
    )
    return {**counts, "most customers": f"{most[0]} ({most[1]:,})"}


def insert(session: DuckDBSession, run: Run) -> list[ProofEntry]:
    """Insert rows that are given as values, and rows of a query over the same table, each in one version, once in a run."""
    session.attach()
    copied = (
        f"SELECT {BY_QUERY.first - 1} + row_number() OVER (ORDER BY o_orderkey), o_custkey, o_orderstatus, o_totalprice, "
        "o_orderdate, o_orderpriority, 'Clerk#external-duckdb-bulk', o_shippriority, 'duckdb bulk insert' "
        f"FROM {_ORDERS} WHERE o_orderkey <= {LOADED.last} ORDER BY o_orderkey "
        f"LIMIT {len(BY_QUERY.keys) + len(BY_QUERY_DELETED.keys)}"
    )
    return [
        *_insert(session, run, "INSERT VALUES", values(BY_VALUES, "Clerk#external-duckdb"), BY_VALUES),
        *_insert(session, run, "INSERT SELECT", copied, BY_QUERY, BY_QUERY_DELETED),
    ]


def _insert(session: DuckDBSession, run: Run, operation: str, query: str, *blocks: Block) -> list[ProofEntry]:
    names = ", ".join(ORDERS.column_names)
    session.rows(f"CREATE OR REPLACE TEMP TABLE inserted AS SELECT * FROM ({query}) AS given({names})")
    digests = by_duckdb(session, [DigestPart.of(ORDERS, "inserted", block) for block in blocks])
    load = f"{run.id}:{operation}"
    try:
        version = session.append(ORDERS, "SELECT * FROM inserted", [load]).version
    except AlreadyLoaded:
        version = version_of_load(session.log(ORDERS), load)
    session.attach()
    return [
        ProofEntry("duckdb_insert", Engine.DUCKDB, ORDERS.name, operation, version, block, digest)
        for block, digest in zip(blocks, digests, strict=True)
    ]
