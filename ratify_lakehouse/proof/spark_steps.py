"""What Spark does in the proof, in batch: reads, joins, VERSION AS OF; appends, CTAS, MERGE, UPDATE and DELETE."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.declarations import OWNER, SAFE_PROPERTIES, Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof.proof_ledger import ProofEntry, Run
from ratify_lakehouse.proof.proof_rows import (
    BY_QUERY_DELETED,
    BY_VALUES,
    MERGED,
    SAVED,
    SAVED_DELETED,
    WRITTEN,
    any_of,
    values,
)
from ratify_lakehouse.proof.proof_tables import ORDERS, ORDERS_SUMMARY
from ratify_lakehouse.proof.row_digest import Block, Digest, DigestPart, by_spark
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STEP = "spark_write"
_CLERK = "Clerk#external-spark"
_UPDATED = (BY_VALUES, SAVED)
_DELETED = (BY_QUERY_DELETED, SAVED_DELETED)


def name_of(spark: Spark, table: TableDeclaration) -> str:
    """Return the full name of a table, as SQL has it."""
    return spark.sql_name(table)


def read(spark: Spark, run: Run) -> dict[str, Any]:
    """Count the orders now and at the baseline, and join them; return the counts and the segment that ordered most."""
    orders = name_of(spark, ORDERS)
    loaded = next(entry for entry in run.baseline() if entry.table == ORDERS.name)
    customer = orders.replace(ORDERS.name, "customer")
    (most,) = spark.rows(
        spark.sql(
            f"SELECT c_mktsegment, count(*) AS n FROM {orders} JOIN {customer} ON o_custkey = c_custkey GROUP BY 1 "
            "ORDER BY n DESC, c_mktsegment LIMIT 1"
        )
    )
    return {
        "orders": spark.count(ORDERS),
        f"orders at version {loaded.version}": spark.count(ORDERS, loaded.version),
        "most orders": f"{most['c_mktsegment']} ({most['n']:,})",
    }


def write(spark: Spark) -> list[ProofEntry]:
    """Write in each way that Spark has; return what every commit has left, by what was to be written."""
    orders = name_of(spark, ORDERS)
    _take_back(spark, orders)
    return [
        *_append(spark, orders, (SAVED, SAVED_DELETED), "saveAsTable"),
        *_append(spark, orders, (WRITTEN,), "writeTo"),
        summarize(spark),
        *_merge(spark, orders),
        *_update(spark, orders),
        *_delete(spark, orders),
    ]


def _take_back(spark: Spark, orders: str) -> None:
    """Delete what an attempt that died has left."""
    own = any_of("o_orderkey", (SAVED, WRITTEN, MERGED, SAVED_DELETED))
    if spark.rows(spark.sql(f"SELECT 1 FROM {orders} WHERE {own} LIMIT 1")):
        spark.commit(spark.full_name(ORDERS), lambda: spark.sql(f"DELETE FROM {orders} WHERE {own}"))


def _entries(operation: str, version: int, blocks: Sequence[Block], digests: Sequence[Digest]) -> list[ProofEntry]:
    return [
        ProofEntry(_STEP, Engine.SPARK, ORDERS.name, operation, version, block, digest)
        for block, digest in zip(blocks, digests, strict=True)
    ]


def _named(query: str) -> str:
    return f"(SELECT * FROM ({query}) AS given({', '.join(ORDERS.column_names)}))"


def _append(spark: Spark, orders: str, blocks: Sequence[Block], how: str) -> list[ProofEntry]:
    query = _named("\nUNION ALL ".join(values(block, _CLERK) for block in blocks))
    digests = by_spark(spark, [DigestPart.of(ORDERS, query, block) for block in blocks])
    frame: DataFrame = spark.sql(f"SELECT * FROM {query}")

    def append() -> None:
        if how == "saveAsTable":
            frame.write.mode("append").saveAsTable(orders)
        else:
            frame.writeTo(orders).append()

    return _entries(how, _version(spark, orders, append), blocks, digests)


def summarize(spark: Spark) -> ProofEntry:
    """Create the table orders_summary by CREATE TABLE AS SELECT, as an external engine does."""
    summary = name_of(spark, ORDERS_SUMMARY)
    query = (
        "SELECT o_orderstatus, o_orderpriority, count(*) AS order_count, sum(o_totalprice) AS total_value, "
        f"avg(o_totalprice) AS avg_value FROM {name_of(spark, ORDERS)} GROUP BY o_orderstatus, o_orderpriority"
    )
    (digest,) = by_spark(spark, [DigestPart.of(ORDERS_SUMMARY, f"({query})")])
    properties = {"delta.feature.catalogManaged": "supported", **SAFE_PROPERTIES, OWNER: ORDERS_SUMMARY.owner}
    given = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    spark.sql(f"DROP TABLE IF EXISTS {summary}")
    spark.sql(f"CREATE TABLE {summary} USING DELTA TBLPROPERTIES ({given}) AS {query}")
    return ProofEntry(_STEP, Engine.SPARK, ORDERS_SUMMARY.name, "CREATE TABLE AS SELECT", 0, None, digest)


def _merge(spark: Spark, orders: str) -> list[ProofEntry]:
    blocks = (WRITTEN, MERGED)
    query = _named("\nUNION ALL ".join(values(block, f"{_CLERK}-merged", "P") for block in blocks))
    digests = by_spark(spark, [DigestPart.of(ORDERS, query, block) for block in blocks])
    merge = (
        f"MERGE INTO {orders} AS target USING {query} AS source ON target.o_orderkey = source.o_orderkey "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    return _entries("MERGE", _version(spark, orders, lambda: spark.sql(merge)), blocks, digests)


def _update(spark: Spark, orders: str) -> list[ProofEntry]:
    changes = {"o_orderstatus": "'U'", "o_comment": "concat('updated by Spark: ', o_comment)"}
    columns = ", ".join(f"{changes.get(column, column)} AS {column}" for column in ORDERS.column_names)
    changed = f"(SELECT {columns} FROM {orders})"
    digests = by_spark(spark, [DigestPart.of(ORDERS, changed, block) for block in _UPDATED])
    settings = ", ".join(f"{column} = {to}" for column, to in changes.items())
    update = f"UPDATE {orders} SET {settings} WHERE {any_of('o_orderkey', _UPDATED)}"
    return _entries("UPDATE", _version(spark, orders, lambda: spark.sql(update)), _UPDATED, digests)


def _delete(spark: Spark, orders: str) -> list[ProofEntry]:
    delete = f"DELETE FROM {orders} WHERE {any_of('o_orderkey', _DELETED)}"
    version = _version(spark, orders, lambda: spark.sql(delete))
    return _entries("DELETE", version, _DELETED, [Digest(0, 0)] * len(_DELETED))


def _version(spark: Spark, orders: str, write_rows: Any) -> int:
    commit = spark.commit(spark.full_name(ORDERS), write_rows)
    if commit is None:
        raise RuntimeError(f"a write to {orders} committed nothing")
    return commit.version
