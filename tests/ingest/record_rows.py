"""Records put into a table of records, without a stream: in one commit by DuckDB, in milliseconds."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa

from ratify_lakehouse.declarations import TableDeclaration
from tests.engines.lakehouse import Lakehouse

_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_type": pa.int32(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


def put_records(lake: Lakehouse, table: TableDeclaration, rows: Iterable[tuple[Any, ...]]) -> None:
    """Append rows with the columns `RECORD`; their headers are pairs."""
    records = [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows]
    for record in records:
        record["headers"] = record["headers"] and [
            dict(zip(("key", "value"), pair, strict=True)) for pair in record["headers"]
        ]
    with lake.duckdb.session() as session:
        session.con.register("given_records", pa.Table.from_pylist(records, _SCHEMA))
        session.append(table, "SELECT * FROM given_records", [uuid4().hex])
