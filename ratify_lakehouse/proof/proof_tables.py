"""The tables of the cross-engine proof: the eight of TPC-H, and those that the engines add.

Types are those of DuckDB's `dbgen`, in Spark SQL's words. Keys of rows that the proof adds lie far above those of TPC-H at
any scale factor, so that they can be distinguished.
"""

from collections.abc import Mapping

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.settings import TPCH

_MONEY = "decimal(15,2)"

_TPCH: Mapping[str, tuple[str, str]] = {
    "region": ("Regions of the world", "r_regionkey int, r_name string, r_comment string"),
    "nation": ("Nations", "n_nationkey int, n_name string, n_regionkey int, n_comment string"),
    "supplier": (
        "Suppliers",
        (
            "s_suppkey bigint, s_name string, s_address string, s_nationkey int, s_phone string, s_acctbal money, "
            "s_comment string"
        ),
    ),
    "customer": (
        "Customers",
        (
            "c_custkey bigint, c_name string, c_address string, c_nationkey int, c_phone string, c_acctbal money, "
            "c_mktsegment string, c_comment string"
        ),
    ),
    "part": (
        "Parts",
        (
            "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, p_container string, "
            "p_retailprice money, p_comment string"
        ),
    ),
    "partsupp": (
        "Parts by supplier",
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty bigint, ps_supplycost money, ps_comment string",
    ),
    "orders": (
        "Orders; every engine of the proof writes to them",
        (
            "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice money, o_orderdate date, "
            "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string"
        ),
    ),
    "lineitem": (
        "Lines of orders",
        (
            "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber bigint, l_quantity money, "
            "l_extendedprice money, l_discount money, l_tax money, l_returnflag string, l_linestatus string, "
            "l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, l_shipmode string, "
            "l_comment string"
        ),
    ),
}


def _columns(text: str) -> tuple[Column, ...]:
    named = (column.split(" ") for column in text.split(", "))
    return tuple(Column(name, _MONEY if type_ == "money" else type_) for name, type_ in named)


def _table(name: str, comment: str, columns: tuple[Column, ...], writer: Engine, *operations: str) -> TableDeclaration:
    return TableDeclaration(
        layer=TPCH, name=name, columns=columns, comment=comment, writer=writer, operations=frozenset(operations)
    )


TABLES: Mapping[str, TableDeclaration] = {
    name: _table(name, comment, _columns(columns), Engine.DUCKDB, "WRITE") for name, (comment, columns) in _TPCH.items()
}
"""The eight tables of TPC-H by name, those first that others refer to."""

ORDERS = TABLES["orders"]

ORDERS_STREAM = _table(
    "orders_stream", "Orders that Structured Streaming writes", ORDERS.columns, Engine.SPARK, "STREAMING UPDATE"
)

ORDERS_SUMMARY = _table(
    "orders_summary",
    "Orders by status and priority, which Spark creates in one CREATE TABLE AS SELECT",
    (
        Column("o_orderstatus", "string"),
        Column("o_orderpriority", "string"),
        Column("order_count", "bigint"),
        Column("total_value", "decimal(25,2)"),
        Column("avg_value", "decimal(19,6)"),
    ),
    Engine.SPARK,
    "CREATE TABLE AS SELECT",
)

ORDERS_FLINK = _table("orders_flink", "Orders that Flink writes", ORDERS.columns, Engine.FLINK, "WRITE")

PROOF: Mapping[str, TableDeclaration] = {
    **TABLES,
    **{table.name: table for table in (ORDERS_SUMMARY, ORDERS_STREAM, ORDERS_FLINK)},
}
"""Every table of the schema by name."""
