"""The rows of a query with timestamps that are the same in every time zone."""

from typing import TYPE_CHECKING, Any, cast

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import translating
from ratify_lakehouse.sql.spark_sql import has_variant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_in_utc(spark: Spark, frame: "DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a query as `Spark.rows` does, but timestamps with their zone, which is UTC.

    `DataFrame.collect` gives them without a zone, in the local time of this process, where an hour of autumn is twice. Rows
    with a VARIANT are as it gives them: the other way has the bytes of such a value, and fails where it is NULL.
    """
    with translating(spark.translated):
        if any(has_variant(field.dataType.simpleString()) for field in frame.schema.fields):
            return spark.rows(frame)
        return cast("Any", frame).toArrow().to_pylist(maps_as_pydicts="strict")
