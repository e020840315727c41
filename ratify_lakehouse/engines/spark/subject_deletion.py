"""The rows of a subject deleted, in one commit that does not have the subject's value.

Delta writes the condition of a DELETE into the log. That of a MERGE only names the column of its source.
"""

from collections.abc import Sequence

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.spark_sql import table_name
from ratify_lakehouse.sql.subject_match import Match


def delete_subject(spark: Spark, full_name: str, matches: Sequence[Match], value: str) -> None:
    """Delete the rows of a subject from a table, in one commit of Spark; it raises what Spark raises.

    Args:
        spark: The session.
        full_name: The table.
        matches: How the rows are known.
        value: The subject's.
    """
    from pyspark.sql import functions

    subject = spark.session.range(1).select(functions.lit(value).alias("value"))
    condition = " OR ".join(match.spark("t", "s.value") for match in matches)
    merge = f"MERGE INTO {table_name(full_name)} AS t USING {{subject}} AS s ON {condition} WHEN MATCHED THEN DELETE"
    spark.rows(spark.sql(merge, subject=subject))
