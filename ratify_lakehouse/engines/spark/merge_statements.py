"""The statements by which Spark makes a table equal to rows, or adds rows to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.sql.spark_sql import identifier, literal, same_keys, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TableChanges:
    """What a MERGE on its keys changes in a table.

    Attributes:
        rows: At least one. For each key a column `ratify_key_<name>`; the table's columns; and `ratify_present`, which is
            false where the row of these keys is to be deleted.
        only_new: Whether the table has none of these keys: Delta then looks through its files once, not twice.
    """

    rows: "DataFrame"
    only_new: bool = False


def merge_sql(declaration: TableDeclaration, full_name: str, rows: str) -> str:
    """Return the MERGE that makes a table equal to the rows of a view."""
    on = same_keys(declaration.keys, "target", "source")
    target, source = (", ".join(f"{side}.{name}" for name in _quoted(declaration)) for side in ("target", "source"))
    return (
        f"MERGE INTO {table_name(full_name)} AS target USING {rows} AS source ON {on}\n"
        f"WHEN MATCHED AND NOT (struct({target}) <=> struct({source})) THEN UPDATE SET *\n"
        "WHEN NOT MATCHED THEN INSERT *\n"
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )


def fill_sql(declaration: TableDeclaration, full_name: str, rows: str) -> str:
    """Return the MERGE that inserts the rows of a view into a table that has none, as they are ordered."""
    on = same_keys(declaration.keys, "target", "source")
    return f"MERGE INTO {table_name(full_name)} AS target USING {rows} AS source ON {on} WHEN NOT MATCHED THEN INSERT *"


def insert_missing_sql(full_name: str, rows: str, column: str) -> str:
    """Return the MERGE that inserts the rows of a view whose value of a column no row of the table has."""
    return (
        f"MERGE INTO {table_name(full_name)} AS target USING {rows} AS source "
        f"ON {same_keys([column], 'target', 'source')}\n"
        "WHEN NOT MATCHED THEN INSERT *"
    )


def changes_merge_sql(
    declaration: TableDeclaration, full_name: str, changes: str, within: str, *, only_new: bool = False
) -> str:
    """Return the MERGE of `TableChanges`, whose rows a relation has."""
    keys = (f"target.{identifier(key)} <=> source.{identifier(f'ratify_key_{key}')}" for key in declaration.keys)
    on, columns = " AND ".join([*keys, within]), _quoted(declaration)
    of_stored = (
        "WHEN MATCHED AND NOT source.ratify_present THEN DELETE\n"
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = source.{name}' for name in columns)}\n"
    )
    return (
        f"MERGE INTO {table_name(full_name)} AS target USING {changes} AS source ON {on}\n"
        f"{'' if only_new else of_stored}"
        f"WHEN NOT MATCHED AND source.ratify_present THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({', '.join(f'source.{name}' for name in columns)})"
    )


def marked_insert_sql(declaration: TableDeclaration, full_name: str, rows: str, mark: str) -> str:
    """Return the MERGE that inserts the rows of a relation, with a mark in the table's history.

    The history has the condition of each clause of a MERGE, and nothing of an INSERT.

    Args:
        declaration: The table.
        full_name: Its name.
        rows: The rows.
        mark: A text that no other commit has.
    """
    columns = _quoted(declaration)
    return (
        f"MERGE INTO {table_name(full_name)} AS target "
        f"USING (SELECT *, {literal(mark)} AS ratify_mark FROM {rows}) AS source ON false\n"
        f"WHEN NOT MATCHED AND source.ratify_mark = {literal(mark)} THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({', '.join(f'source.{name}' for name in columns)})"
    )


def insert_sql(declaration: TableDeclaration, full_name: str, rows: str, *, overwrite: bool = False) -> str:
    """Return the INSERT of the rows of a view, by the names of the columns, beside a table's rows or in place of them."""
    columns = ", ".join(_quoted(declaration))
    how = "OVERWRITE" if overwrite else "INTO"
    return f"INSERT {how} {table_name(full_name)} ({columns}) SELECT {columns} FROM {rows}"


def _quoted(declaration: TableDeclaration) -> Sequence[str]:
    return [identifier(name) for name in declaration.column_names]
