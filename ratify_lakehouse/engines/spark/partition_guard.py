"""Rows that Spark is about to write to a table: a value that no partition can have is an error, and not another value.

The error is raised where the row is computed, in the write itself: no query runs before it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.column_types import type_of_delta
from ratify_lakehouse.errors import AppendFailed
from ratify_lakehouse.sql.partition_values import IN_SPARK, unusable
from ratify_lakehouse.sql.spark_sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEGIN, _END = "ratify refuses (", ") a value of a partition"
_RAISED = re.compile(rf"{re.escape(_BEGIN)}(.*?){re.escape(_END)}", re.DOTALL)


def partition_types(loaded: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of a table's partition columns by name, in Spark SQL's words, given the catalog's answer for it."""
    fields: Sequence[Mapping[str, Any]] = loaded["metadata"]["columns"]["fields"]
    named: Sequence[str] = loaded["metadata"].get("partition-columns") or []
    return {field["name"]: type_of_delta(field["type"]).spark for field in fields if field["name"] in named}


def guarded_value(full_name: str, name: str, type_: str, keys: Sequence[str] = (), where: str = "true") -> str:
    """Return the expression of a column, in which a value that no partition can have is an error; empty if it has none such.

    Args:
        full_name: The table.
        name: The partition column.
        type_: Its type, in Spark SQL's words.
        keys: Columns whose values name the row in the error.
        where: The condition of the rows that are written.
    """
    column = identifier(name)
    wrong = unusable(IN_SPARK, name, type_, column)
    if not wrong:
        return ""
    shown = (f"concat({literal(f'{key} = ')}, coalesce(CAST({identifier(key)} AS STRING), 'NULL'))" for key in keys)
    row = f", ', the row with ', concat_ws(', ', {', '.join(shown)})" if keys else ""
    text = f"concat({literal(f'{_BEGIN}{full_name}, column {name}')}{row}, ': ', {wrong}, {literal(_END)})"
    return f"CASE WHEN ({where}) AND {wrong} IS NOT NULL THEN raise_error({text}) ELSE {column} END"


def guarded(
    frame: "DataFrame", full_name: str, partitions: Mapping[str, str], keys: Sequence[str] = (), where: str = "true"
) -> "DataFrame":
    """Return rows for a table, whose values of partition columns are checked as they are written.

    Args:
        frame: The rows.
        full_name: The table.
        partitions: The types of those of its partition columns that the rows have, by name.
        keys: Columns whose values name a row in the error.
        where: The condition of the rows that are written.
    """
    from pyspark.sql.functions import expr

    values = {name: guarded_value(full_name, name, type_, keys, where) for name, type_ in partitions.items()}
    checked = {name: expr(value) for name, value in values.items() if value}
    return frame.withColumns(checked) if checked else frame


def refused_value(error_text: str) -> AppendFailed | None:
    """Return the error of a guarded value, given the text of Spark's error; None for other errors."""
    found = _RAISED.search(error_text)
    if found is None:
        return None
    return AppendFailed(
        f"{found[1]}. Nothing was written. Give such rows another value in the query, quarantine them by an expectation, or "
        "cluster the table by this column instead."
    )
