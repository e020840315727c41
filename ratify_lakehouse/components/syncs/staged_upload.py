"""Rows that DuckDB reads here, sent to a table beside a sync's destination for as long as a run needs them there."""

import json
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ratify_lakehouse.components.syncs.duckdb_source import typed_rows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.components.syncs.warehouse_queries import WarehouseQueries
from ratify_lakehouse.errors import RatifyError, SyncRefused
from ratify_lakehouse.sql import duckdb_sql
from ratify_lakehouse.sql.spark_sql import identifier, table_name

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

logger = logging.getLogger(__name__)

MOST_BYTES = 4 * 1024 * 1024
"""Of the rows of one statement, unless a single row has more. A workspace takes a statement of 16 MiB."""

_NESTED = ("list", "map", "struct")


@dataclass(frozen=True)
class UploadedRows:
    """Rows in a staging table.

    Attributes:
        text: The query for them, with their names and types.
        types: Of the columns, by name, in Spark SQL's words.
    """

    text: str
    types: dict[str, str]


@contextmanager
def uploaded(
    queries: WarehouseQueries, sync: SyncDeclaration, con: "DuckDBPyConnection", text: str
) -> Generator[UploadedRows]:
    """Send the rows of a query of DuckDB to a staging table, which is dropped after the block in any case.

    A workspace takes 256 parameters a statement, and a statement whose reply is lost is sent again. So each statement has
    all of its rows in one parameter, JSON, and each row has its number, by which it counts once.

    Raises:
        QueryMismatch: the query has a column of a type that no table has.
        SyncRefused: rows are missing.
    """
    text, types = typed_rows(con.sql(text))
    relation = con.sql(text)
    name = f"{sync.destination.schema}.ratify_staging_{sync.name}_{uuid4().hex[:12]}"
    table = table_name(f"{sync.destination.catalog or queries.catalog_name}.{name}")
    places = [f"c{number}" for number in range(len(types))]
    try:
        queries.warehouse.rows(
            f"CREATE TABLE {table} (place STRING, {', '.join(f'{each} STRING' for each in places)}) USING DELTA"
        )
        sent = _send(queries, sync, con.execute(_as_texts(relation, text)), f"{table} (place, {', '.join(places)})")
        if queries.count(f"(SELECT DISTINCT place FROM {table})") != sent:
            raise SyncRefused(
                f"Not all {sent} rows of the source of the sync {sync.name} came to {table}. Nothing was written."
            )
        values = ", ".join(
            f"{_from_text(each, type_)} AS {identifier(column)}"
            for each, (column, type_) in zip(places, types.items(), strict=True)
        )
        yield UploadedRows(f"SELECT {values} FROM (SELECT DISTINCT * FROM {table})", types)
    finally:
        _drop(queries, table)


def _drop(queries: WarehouseQueries, table: str) -> None:
    try:
        queries.warehouse.rows(f"DROP TABLE IF EXISTS {table}")
    except RatifyError as error:
        # What the block raised is raised; the rows, which are nobody's destination, can be dropped at any time.
        logger.warning("%s was not dropped: %s", table, error)


def _send(queries: WarehouseQueries, sync: SyncDeclaration, cursor: Any, into: str) -> int:
    """Send rows, and return how many these are."""
    sent, waiting, size = 0, list[str](), 0
    while fetched := cursor.fetchmany(sync.batch):
        for row in fetched:
            line = json.dumps([str(sent), *row], ensure_ascii=False)
            if waiting and (len(waiting) == sync.batch or size + len(line.encode()) > MOST_BYTES):
                _insert(queries, into, waiting)
                waiting, size = [], 0
            waiting.append(line)
            size += len(line.encode())
            sent += 1
    if waiting:
        _insert(queries, into, waiting)
    return sent


def _insert(queries: WarehouseQueries, into: str, lines: Sequence[str]) -> None:
    width = into.count(",") + 1
    values = ", ".join(f"r[{number}]" for number in range(width))
    queries.warehouse.rows(
        f"INSERT INTO {into} SELECT {values} FROM (SELECT explode(from_json(:rows, 'array<array<string>>')) AS r)",
        {"rows": f"[{','.join(lines)}]"},
    )


def _as_texts(relation: "DuckDBPyRelation", text: str) -> str:
    """The query for the rows with all values as texts, which Spark's SQL casts back to the same values."""
    values = list[str]()
    for name, held in zip(relation.columns, relation.types, strict=True):
        value = duckdb_sql.identifier(name)
        if held.id in _NESTED:
            value = f"CAST(to_json({value}) AS VARCHAR)"
        elif held.id == "blob":
            value = f"hex({value})"
        elif held.id.startswith("timestamp"):
            value = f"strftime(CAST({value} AS TIMESTAMP), '%Y-%m-%d %H:%M:%S.%f') || 'Z'"
        values.append(f"CAST({value} AS VARCHAR)")
    return f"SELECT {', '.join(values)} FROM ({text}) AS given"


def _from_text(place: str, type_: str) -> str:
    if type_ == "string":
        return place
    if type_ == "binary":
        return f"unhex({place})"
    if type_.startswith(("array", "map", "struct")):
        return f"from_json({place}, '{type_}')"
    return f"CAST({place} AS {type_})"
