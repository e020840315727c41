"""What a table that exists has to be, so that the rows of its query can be merged into it."""

from resources.catalog.unity_catalog import UnityCatalog
from resources.column_types import keeps_values, sql_type
from resources.declarations import TableDeclaration
from resources.errors import QueryMismatch, TableMissing
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import identifier
from resources.wording import keys_shown

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
    keys = declaration.keys
    listed = ", ".join(map(identifier, keys))
    several = f"SELECT {listed} FROM {spark.sql_name(declaration)} GROUP BY {listed} HAVING count(*) > 1 LIMIT {_SHOWN_KEYS}"
    if found := spark.rows(spark.sql(several)):
        raise QueryMismatch(
            f"{declaration.table_name} has several rows with the same {', '.join(keys)} "
            f"({keys_shown(found, keys, declaration.personal)}), of which its query gives one. They are from a time when "
            f"its keys were others, or another program wrote them: {_AGAIN}"
        )
