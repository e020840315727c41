"""Rows of a table that fulfil a condition, deleted or replaced by those of a query, with a look at them before.

Rows are replaced by the writer's option `replaceWhere`. SQL's INSERT INTO … REPLACE WHERE passes the condition on as filters
of a data source, of which there are few: of `a IS NULL OR length(a) > 3` Spark 4.2 replaces the rows of the first part only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.engines.spark.key_differences import MOST_ROWS, KeyDifferences, key_differences
from ratify_lakehouse.engines.spark.partition_guard import guarded, partition_types
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import query_errors
from ratify_lakehouse.errors import QueryFailed, QueryMismatch
from ratify_lakehouse.sql.spark_sql import at_version, identifier, literal, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5
"""Rows of each kind in a preview."""

_NEW = "ratify_new_rows"


@dataclass(frozen=True)
class ConditionalChange:
    """What is to be done to a table.

    Attributes:
        full_name: The table.
        where: The condition, in Spark's SQL.
        version: The version that it is planned for.
        rows: Rows in the table at that version.
        matched: Those of them that fulfil the condition.
        going: Some of these.
        new: Rows in their place; None where rows are deleted.
        coming: Some of these.
        keys: How the rows differ by the table's keys; None where nothing comes, there are no keys, or too many rows.
        frame: The new rows, computed.
    """

    full_name: str
    where: str
    version: int
    rows: int
    matched: int
    going: Sequence[dict[str, Any]]
    new: int | None = None
    coming: Sequence[dict[str, Any]] = ()
    keys: KeyDifferences | None = None
    frame: "DataFrame | None" = None

    @property
    def rows_after(self) -> int:
        """Rows in the table afterwards."""
        return self.rows - self.matched + (self.new or 0)

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.matched or self.new)

    @property
    def changes_every_row(self) -> bool:
        """Whether all rows of the table match the condition."""
        return self.matched == self.rows > 0


def planned_change(
    spark: Spark,
    full_name: str,
    where: str,
    query: str | None = None,
    keys: Sequence[str] = (),
    hidden: Collection[str] = (),
) -> ConditionalChange:
    """Return what it would do to delete the rows that match a condition, or to replace them by those of a query.

    Args:
        spark: The session.
        full_name: A managed table.
        where: The condition, in Spark's SQL.
        query: Gives the new rows, in Spark's SQL; None: rows are deleted.
        keys: Columns that identify a row of the table.
        hidden: Columns that the shown rows leave out.

    Raises:
        QueryFailed: Spark cannot evaluate the condition or the query.
        QueryMismatch: the query gives other columns than the table has, or rows that do not fulfil the condition.
        TableMissing, CatalogUnavailable, CatalogDenied, SparkUnavailable.
    """
    version = spark.catalog.version(full_name)
    # PySpark takes a second to import: not before there is a session to use it with.
    _ = spark.session
    with query_errors():
        _check(spark, full_name, where)
        table = at_version(table_name(full_name), version)
        # After WHERE alone, a column in brackets would be an alias of the table, and every row would fulfil the condition.
        matching = f"{table} WHERE true AND ({where}\n)"
        (counts,) = spark.rows(spark.query(f"SELECT count(*) AS n, count_if(({where}\n)) AS matched FROM {table}"))
        types = spark.types(f"SELECT * FROM {table}")
        shown = ", ".join(identifier(name) for name in types if name not in hidden) or f"{literal('…')} AS hidden"
        going = spark.rows(spark.query(f"SELECT {shown} FROM {matching} LIMIT {SHOWN}"))
        change = ConditionalChange(full_name, where, version, counts["n"], counts["matched"], going)
        return change if query is None else _with_new_rows(spark, change, query, types, keys, shown, matching)


def change_rows(spark: Spark, change: ConditionalChange) -> None:
    """Do what was planned, in one commit of Spark; it raises what Spark raises."""
    if change.frame is None:
        spark.rows(spark.sql(_delete(change.full_name, change.where)))
        return
    partitions = partition_types(spark.catalog.load_table(change.full_name))
    rows = guarded(change.frame, change.full_name, partitions)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", change.where)
    writer.saveAsTable(table_name(change.full_name))


def _delete(full_name: str, where: str) -> str:
    return f"DELETE FROM {table_name(full_name)} WHERE true AND ({where}\n)"


def _check(spark: Spark, full_name: str, where: str) -> None:
    """Check that Spark can delete by a condition: it refuses subqueries, and what gives another value each time."""
    plan = "\n".join(row["plan"] for row in spark.rows(spark.sql(f"EXPLAIN {_delete(full_name, where)}")))
    first, _, reason = plan.partition("\n")
    if first.startswith("Error"):
        raise QueryFailed(f"Spark cannot find rows of {full_name} by {where!r}: {reason.strip().splitlines()[0]}")


def _with_new_rows(
    spark: Spark,
    change: ConditionalChange,
    query: str,
    types: dict[str, str],
    keys: Sequence[str],
    shown: str,
    matching: str,
) -> ConditionalChange:
    found = spark.types(query)
    wrong = [name for name in {**types, **found} if _spark(types.get(name)) != _spark(found.get(name))]
    if wrong:
        had, gives = (", ".join(f"{name} {each.get(name, '-')}" for name in wrong) for each in (types, found))
        raise QueryMismatch(
            f"The query returns other columns than {change.full_name} has: {gives}, in place of {had}. Name and CAST "
            "them accordingly."
        )
    frame = spark.computed(spark.sql(query)).select(*types)
    frame.createOrReplaceTempView(_NEW)
    counted = f"SELECT count(*) AS n, count_if(({change.where}\n)) AS fulfil FROM {_NEW}"
    (counts,) = spark.rows(spark.query(counted))
    if other := counts["n"] - counts["fulfil"]:
        raise QueryMismatch(
            f"{other:,} of {counts['n']:,} rows of the query do not match {change.where!r}: they would not be found there "
            "again. Leave them out, or widen the condition."
        )
    compared = keys and change.matched + counts["n"] <= MOST_ROWS
    return ConditionalChange(
        change.full_name,
        change.where,
        change.version,
        change.rows,
        change.matched,
        change.going,
        new=counts["n"],
        coming=spark.rows(spark.query(f"SELECT {shown} FROM {_NEW} LIMIT {SHOWN}")),
        keys=key_differences(spark, keys, matching, _NEW) if compared else None,
        frame=frame,
    )


def _spark(type_: str | None) -> str:
    return sql_type(type_).spark if type_ else ""
