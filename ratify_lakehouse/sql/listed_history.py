"""The SQL of a history that comes from full lists: each date has one, and a row that the next list lacks has ended.

All versions follow from the lists that there are, in the order of their dates. So a list that comes late, or corrected, has
its place in time, whatever was computed before.
"""

from collections.abc import Sequence
from dataclasses import replace

from ratify_lakehouse.sql.row_history import VALID_FROM, VALID_TO, RowHistory, wanted_history
from ratify_lakehouse.sql.spark_sql import identifier


def current_lists(rows: str, date: str, landed_at: str, file: str) -> str:
    """Return the query, for Spark, for the rows of each date's list: those of the file that landed last.

    Of files that landed at the same time, it is the one whose name is greatest.

    Args:
        rows: A relation, the rows of all files.
        date: Its column with the list's date.
        landed_at: That with the time at which the file landed.
        file: That with its name.
    """
    of, at, name = identifier(date), identifier(landed_at), identifier(file)
    return f"""SELECT ratify_rows.* FROM {rows} AS ratify_rows JOIN (
  SELECT {of} AS ratify_date, max(struct({at}, {name})) AS ratify_last FROM {rows} GROUP BY {of}
) ON {of} = ratify_date AND {at} = ratify_last.{at} AND {name} = ratify_last.{name}"""


def listed_history(history: RowHistory, columns: Sequence[str], rows: str, there: str, dates: str, of_time: str) -> str:
    """Return the query, for Spark, for all versions that a table of history has to have.

    Args:
        history: What it follows; `updated_at` has the date of a row's list.
        columns: As of `wanted_history`.
        rows: A relation with these columns; no two rows have the same keys and date, which is not NULL.
        there: A relation with the keys and the date of all rows that the lists have. Where it has one that `rows` lacks, the
            version before goes on.
        dates: A relation with one column, the date of each list.
        of_time: The type of a list's date.
    """
    date, keys = identifier(history.updated_at), ", ".join(map(identifier, history.keys))
    by = f"PARTITION BY {keys} ORDER BY {date}"
    none = f"(SELECT * FROM {rows} WHERE false)"
    same = " AND ".join(f"given.{name} <=> ended.{name}" for name in [*map(identifier, history.keys), date])
    listed = ", ".join(f"given.{identifier(name)}" for name in columns)
    # A version for each row: equal ones that follow each other become one, as those that are stored do.
    versions = f"""(WITH ratify_dates AS (
  SELECT CAST(ratify_date AS {of_time}) AS ratify_date FROM {dates} AS listed(ratify_date)
  UNION SELECT {date} FROM {there}
), ratify_lists AS (
  SELECT ratify_date, lead(ratify_date) OVER (ORDER BY ratify_date) AS ratify_following FROM ratify_dates
  WHERE ratify_date IS NOT NULL
), ratify_given AS (
  SELECT DISTINCT {keys}, {date} FROM {there}
), ratify_gaps AS (
  SELECT ratify_given.*, CASE WHEN NOT lead({date}) OVER ({by}) <=> ratify_following THEN ratify_following END AS ratify_gone
  FROM ratify_given JOIN ratify_lists ON {date} = ratify_date
), ratify_ended AS (
  SELECT *, min(ratify_gone) OVER ({by} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS ratify_end FROM ratify_gaps
)
SELECT {listed}, given.{date} AS {VALID_FROM}, ended.ratify_end AS {VALID_TO}
FROM {rows} AS given JOIN ratify_ended AS ended ON {same})"""
    return wanted_history(replace(history, close=False), columns, versions, none, f"CAST(NULL AS {of_time})", none)
