"""What a stream with expectations has written, put into its tables without Spark: where a later step is the subject."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.engines.lakehouse import Lakehouse

Row = Mapping[str, Any]


def put_validated(lake: Lakehouse, stream: EventStream, accepted: Sequence[Row], aside: Sequence[Row]) -> None:
    """Write what the first batch of a stream writes.

    Args:
        lake: Has the tables.
        stream: The stream.
        accepted: Rows of its table, by column; NULL where one has none.
        aside: Rows of its quarantine, likewise.
    """
    entry = dict.fromkeys(("batch_id", "dropped", "late", "duplicates"), 0)
    entry |= {"records": len(accepted) + len(aside), "accepted": len(accepted), "quarantined": len(aside)}
    given: list[tuple[TableDeclaration, Sequence[Row]]] = [(stream.table, accepted), (stream.quarantine, aside)]
    for table, rows in (*given, (STREAM_BATCHES, [entry | {"stream": stream.name, "checkpoint": "c"}])):
        # Our own commits have no maps; what a file does not have is NULL.
        written = replace(table, columns=tuple(column for column in table.columns if not column.type.startswith("map")))
        values = (f"({', '.join(_shown(row.get(name)) for name in written.column_names)})" for row in rows)
        if rows:
            lake.insert(written, f"VALUES {', '.join(values)}")


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return "NULL" if value is None else literal(str(value))
