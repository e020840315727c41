"""Two versions of a table, compared row by row by its keys."""

from collections.abc import Sequence
from dataclasses import dataclass

from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import at_version, identifier, same_keys, table_name

_OPTIONS = "map('ignoreNullFields', 'true')"


@dataclass(frozen=True)
class KeyDifferences:
    """How many rows differ between two versions.

    Attributes:
        gone: Rows of the first whose keys the second does not have.
        back: Rows of the second whose keys the first does not have.
        other: Rows whose keys both have, with other values.
    """

    gone: int
    back: int
    other: int


def compared_by_keys(spark: Spark, full_name: str, keys: Sequence[str], first: int, second: int) -> KeyDifferences:
    """Compare two versions of a table, both of which are read as a whole.

    Args:
        spark: The session.
        full_name: The table.
        keys: Columns of both versions that identify a row. A column that one version lacks is NULL there.
        first: A version.
        second: A version.
    """
    listed = ", ".join(map(identifier, keys))
    one, other = (
        f"(SELECT {listed}, to_json(struct(*), {_OPTIONS}) AS ratify_row FROM {at_version(table_name(full_name), each)})"
        for each in (first, second)
    )
    text = (
        "SELECT count_if(b.ratify_row IS NULL) AS gone, count_if(a.ratify_row IS NULL) AS back, "
        "count_if(a.ratify_row <> b.ratify_row) AS other "
        f"FROM {one} AS a FULL OUTER JOIN {other} AS b ON {same_keys(keys, 'a', 'b')}"
    )
    (row,) = spark.rows(spark.query(text))
    return KeyDifferences(**row)
