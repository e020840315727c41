"""Two relations, compared row by row by keys."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.spark_sql import identifier, same_keys

MOST_ROWS = 2_000_000
"""More rows in both than that are not compared for a preview, which is to take seconds."""


@dataclass(frozen=True)
class KeyDifferences:
    """How many rows differ between two relations.

    Attributes:
        gone: Rows of the first whose keys the second does not have.
        back: Rows of the second whose keys the first does not have.
        other: Rows whose keys both have, with other values.
    """

    gone: int
    back: int
    other: int


def key_differences(spark: Spark, keys: Sequence[str], first: str, second: str) -> KeyDifferences:
    """Compare two relations, both of which are read as a whole.

    Args:
        spark: The session.
        keys: Columns of both that identify a row. Any other column that one of them lacks is NULL there.
        first: A relation, as a statement names it.
        second: Likewise.
    """
    listed = ", ".join(map(identifier, keys))
    one, other = (f"(SELECT {listed}, to_json(struct(*)) AS ratify_row FROM {each})" for each in (first, second))
    text = (
        "SELECT count_if(b.ratify_row IS NULL) AS gone, count_if(a.ratify_row IS NULL) AS back, "
        "count_if(a.ratify_row <> b.ratify_row) AS other "
        f"FROM {one} AS a FULL OUTER JOIN {other} AS b ON {same_keys(keys, 'a', 'b')}"
    )
    (row,) = spark.rows(spark.query(text))
    return KeyDifferences(**row)
