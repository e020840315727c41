"""The change data feed of a table: its rows that commits changed, as they were and as they are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ratify_lakehouse.delta.feed_parts import partitions_known_since
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ChangesNotRecorded, LogUnreadable, UnsafeTable
from ratify_lakehouse.sql.spark_sql import has_text, identifier, literal, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_changes(spark: Spark, full_name: str, first: int | None = None, last: int | None = None) -> "DataFrame":
    """Return the rows that a range of versions changed.

    Args:
        spark: The session.
        full_name: A managed table.
        first: The first version; by default the earliest that has the feed.
        last: The last version; by default the latest.

    Returns:
        The table's columns, and Delta's: `_change_type` (insert, delete, update_preimage, update_postimage),
        `_commit_version` and `_commit_timestamp`. In no order.

    Raises:
        TableMissing: there is no such table.
        StorageUnavailable: its storage did not answer.
        ChangesNotRecorded: its log cannot be read here; one of the versions has no feed, or does not exist; or the table had
            other partitions before.
    """
    try:
        log = TableLog.read(spark.catalog, full_name)
    except (LogUnreadable, UnsafeTable) as error:
        raise ChangesNotRecorded(
            f"It is unknown which versions of {full_name} have a change data feed: {error} Ask Spark: SELECT * FROM "
            f"table_changes('{full_name}', <version>)."
        ) from error
    # Spark would return all rows of the table for versions without a feed.
    first, last = log.recorded_range(first, last)
    if (since := partitions_known_since(log, first, last)) > first:
        raise ChangesNotRecorded(
            f"The partitions of {full_name} have changed since version {since}, and Spark does not know which values the "
            f"rows that changed before had in them: read from version {since} on, or DuckDB (`--engine duckdb`)."
        )
    return spark.sql(f"SELECT * FROM table_changes({literal(table_name(full_name))}, {first}, {last})")


def unless_replaced(types: Mapping[str, str]) -> str:
    """Return the condition by which a query over a feed fails where a text in it may be none of the table's.

    Delta reads the feed as text of the JVM, which has the sign of replacement for bytes that are no UTF-8.

    Args:
        types: Of the table's columns, in Spark SQL.

    Returns:
        A WHERE; empty if no column has text.
    """
    texts = [
        identifier(column) if type_ == "string" else f"to_json(struct({identifier(column)}))"
        for column, type_ in types.items()
        if has_text(type_)
    ]
    found = " OR ".join(f"coalesce(contains({text}, '\ufffd'), false)" for text in texts)
    return f" WHERE assert_true(NOT ({found}), 'text of the feed may be another') IS NULL" if texts else ""
