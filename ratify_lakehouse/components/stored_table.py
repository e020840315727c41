"""What a table that exists has to be, so that the rows of its query can be merged into it."""

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import keeps_values, sql_type
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.errors import QueryMismatch, TableMissing

LOST_ROWS = (
    "drop the table and materialize it again; a table of the strategy append, append_by_period or scd2 then loses its "
    "earlier rows."
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
                f"{declaration.table_name} has the column {name}, which its query does not return. Nothing was written: add "
                f"it to the query, if only as CAST(NULL AS {type_.spark.upper()}) AS {name}; or {LOST_ROWS}"
            )
        if not keeps_values(type_, sql_type(found.type)):
            raise QueryMismatch(
                f"{declaration.table_name}, column {name}: it is {type_.spark} in the table, but its query returns "
                f"{sql_type(found.type).spark}. Nothing was written: write CAST(… AS {type_.spark.upper()}) AS {name} in "
                f"the query; or {LOST_ROWS}"
            )
