"""Rows that a caller gives as Arrow, Polars or pandas, checked against the table that they are for."""

# pyright: basic
# Arrow and pandas ship no types.

import re
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, Union
from uuid import uuid4

from ratify_lakehouse.column_types import SqlType, sql_type
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.engines.duckdb.query_types import spark_types
from ratify_lakehouse.errors import AppendFailed, NotConfigured
from ratify_lakehouse.sql.duckdb_sql import identifier

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

Appendable: TypeAlias = Union[
    "pa.Table", "pa.RecordBatch", "pa.RecordBatchReader", "pl.DataFrame", "pl.LazyFrame", "pd.DataFrame"
]
"""Rows: of Arrow, Polars or pandas. Whatever else exports an Arrow stream will do."""

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_WITHOUT_ZONE = re.compile(r"\bTIMESTAMP(?:_\w+)?\b(?! WITH)")
_DECIMAL = re.compile(r"^DECIMAL\((\d+),(\d+)\)$")


def needed(*packages: str) -> None:
    """Check that packages are installed.

    Raises:
        NotConfigured: one is not.
    """
    for package in packages:
        if find_spec(package) is None:
            raise NotConfigured(f"{package} is not installed: install it, or ratify-lakehouse[dataframes].")


def columns_of_rows(table: str, data: Appendable) -> tuple[Column, ...]:
    """Return the columns that a table for rows has.

    Raises:
        AppendFailed: a column has a type that no column of a table has.
        TypeError: the data are no rows.
    """
    import duckdb

    with closing(duckdb.connect()) as con:
        # The rows of a reader can be read once: they are left to who appends them.
        rows: Any = data
        if type(data).__name__ == "RecordBatchReader":
            rows = rows.schema.empty_table()
        con.register("given", arrow_rows(table, rows))
        columns = list[Column]()
        for name, (held, spark) in spark_types(con, "FROM given").items():
            if spark is None or _WITHOUT_ZONE.search(held):
                raise AppendFailed(
                    f"{table}, column {name}: {held.lower()} cannot be the type of a table's column. Cast the column."
                )
            columns.append(Column(name, spark))
    return tuple(columns)


def registered(con: "DuckDBPyConnection", snapshot: Snapshot, data: Appendable) -> str:
    """Make rows known to a connection, and return the query for them with the columns of a table, in its order.

    Raises:
        AppendFailed: the rows do not fit the table; the message names the column, its type and the type that is given.
        TypeError: the data are no rows.
    """
    rows = arrow_rows(snapshot.full_name, data)
    nothing = {field.name for field in rows.schema if str(field.type) == "null"}
    name = f"ratify_given_{uuid4().hex}"
    con.register(name, rows)
    given = spark_types(con, f"FROM {name}")
    by_name = {column.lower(): column for column in given}
    fields = snapshot.column_types
    for column, type_ in fields.items():
        if (found := by_name.pop(column.lower(), None)) is None:
            raise AppendFailed(
                f"{snapshot.full_name}, column {column}: {type_.spark} is expected, and no such column given."
            )
        # A column of NULL alone fits any.
        if found not in nothing:
            _check_type(snapshot.full_name, column, type_, *given[found])
    if by_name:
        raise AppendFailed(
            f"{snapshot.full_name} has no column {', '.join(by_name.values())}, which is given: it has {', '.join(fields)}. "
            "Add the column to the table, or leave it out."
        )
    chosen = {column.lower(): column for column in given}
    return f"SELECT {', '.join(identifier(chosen[column.lower()]) for column in fields)} FROM {name}"


def _check_type(table: str, column: str, type_: SqlType, held: str, spark: str | None) -> None:
    if _WITHOUT_ZONE.search(held) and "TIMESTAMP_NTZ" not in str(type_):
        expected = f"{table}, column {column}: {type_.spark} is expected, and a timestamp without a time zone given"
        raise AppendFailed(
            f"{expected}. Convert it, as by replace_time_zone('UTC') in Polars or dt.tz_localize('UTC') in pandas."
        )
    if spark is None or not _fits(type_, sql_type(spark)):
        raise AppendFailed(
            f"{table}, column {column}: {type_.spark} is expected, and {spark or held} given. Cast the column: a value that "
            "the table cannot hold would be changed otherwise."
        )


def _fits(stored: SqlType, given: SqlType) -> bool:
    """Return whether a type has a place for each value of another, which stays as it is."""
    if stored.parts or given.parts:
        same = stored.name == given.name and [name for name, _ in stored.parts] == [name for name, _ in given.parts]
        return same and all(_fits(mine, theirs) for (_, mine), (_, theirs) in zip(stored.parts, given.parts, strict=True))
    if stored.name in _INTEGERS and given.name in _INTEGERS:
        return _INTEGERS.index(stored.name) >= _INTEGERS.index(given.name)
    sizes = [_DECIMAL.match(type_.name) for type_ in (stored, given)]
    if sizes[0] and sizes[1]:
        (digits, scale), (given_digits, given_scale) = ([int(number) for number in size.groups()] for size in sizes if size)
        return scale >= given_scale and digits - scale >= given_digits - given_scale
    return stored == given or (stored.name, given.name) == ("DOUBLE", "FLOAT")


def arrow_rows(full_name: str, data: Any) -> "pa.Table":
    """Return rows as a table of Arrow; of a reader or a LazyFrame, all of them are read.

    Raises:
        AppendFailed: a column has values of several types, or times that would be cut off.
        TypeError: the data are no rows.
    """
    needed("pyarrow")
    import pyarrow as pa

    # By the name of its package: the package is loaded if there is an object of it.
    if type(data).__module__.partition(".")[0] == "pandas":
        try:
            table = pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            # The first part has a value of the row.
            raise AppendFailed(f"{full_name}: {error.args[-1]}. Give each value of the column the same type.") from error
    elif hasattr(data, "collect"):
        table = pa.table(data.collect())
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        table = pa.table(data)
    else:
        raise TypeError(
            f"{type(data).__name__} has no rows that can be appended: give a table or DataFrame of Arrow, Polars or pandas"
        )
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(field.type.value_type))
        elif pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            table = table.set_column(number, field.name, _microseconds(full_name, table, field))
    return table


def _microseconds(full_name: str, table: "pa.Table", field: "pa.Field") -> "pa.ChunkedArray":
    """The times of a column, which a table stores by the microsecond."""
    import pyarrow as pa

    try:
        return table.column(field.name).cast(pa.timestamp("us", field.type.tz))
    except pa.ArrowInvalid as error:
        raise AppendFailed(
            f"{full_name}, column {field.name}: has times finer than a microsecond, which would be cut off. Round them."
        ) from error
