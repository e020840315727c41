"""What a table that exists has to be, so that the rows of its query can be merged into it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import keeps_values, sql_type
from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import QueryMismatch, TableMissing
from ratify_lakehouse.wording import keys_shown

_SHOWN_KEYS = 3
_AGAIN = (
    "drop the table and materialize it again, by which a table of the strategy append, snapshot or scd2 loses what its "
    "query gave before."
)


def check_stored_columns(catalog: UnityCatalog, declaration: TableDeclaration) -> None:
    """Check that a table, where it exists, has no column that its query lacks, and none of another type.

    A statement that names the columns would leave NULL or an old value in the former, and Spark rounds what it writes into
    the latter.

    Raises:
        QueryMismatch: it has one; nothing was written.
    """
    try:
        stored = catalog.table(declaration.full_name(catalog.connection.name)).columns or []
    except TableMissing:
        return
    given = {column.name.lower(): column for column in declaration.columns}
    for column in stored:
        name, type_ = column.name or "", sql_type(column.type_text or "")
        if (found := given.get(name.lower())) is None:
            raise QueryMismatch(
                f"{declaration.table_name} has the column {name}, which its query does not give. Nothing was written: write "
                f"it in the query, if only as CAST(NULL AS {type_.spark.upper()}) AS {name}; or {_AGAIN}"
            )
        if not keeps_values(type_, sql_type(found.type)):
            raise QueryMismatch(
                f"{declaration.table_name}, column {name}: the table has it as {type_.spark}, and its query gives "
                f"{sql_type(found.type).spark}. Nothing was written: write CAST(… AS {type_.spark.upper()}) AS {name} in "
                f"the query; or {_AGAIN}"
            )


def check_stored_keys(spark: Spark, declaration: TableDeclaration) -> None:
    """Check that no two rows of a table have the same keys, as after its keys were made fewer.

    Raises:
        QueryMismatch: some have.
    """
    check_keys_of(declaration, spark.sql_name(declaration), SPARK, lambda text: spark.rows(spark.sql(text)))


def check_keys_of(
    declaration: TableDeclaration, stored: str, sql: RuleDialect, records: Callable[[str], Sequence[Mapping[str, Any]]]
) -> None:
    """Check the keys of stored rows of a table, by any engine.

    Args:
        declaration: The table.
        stored: The rows: a relation.
        sql: The words of the engine.
        records: Runs a query, and returns its rows.

    Raises:
        QueryMismatch: two rows have the same.
    """
    keys, listed = declaration.keys, sql.listed(declaration.keys)
    if found := records(f"SELECT {listed} FROM {stored} GROUP BY {listed} HAVING count(*) > 1 LIMIT {_SHOWN_KEYS}"):
        raise QueryMismatch(
            f"{declaration.table_name} has several rows with the same {', '.join(keys)} "
            f"({keys_shown(found, keys, declaration.personal)}), of which its query gives one. They are from a time when "
            f"its keys were others, or another program wrote them: {_AGAIN}"
        )
