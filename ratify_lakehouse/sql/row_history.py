"""The SQL of a table of history: which versions each row has had, and from when to when.

A version is valid from `valid_from` on, until `valid_to`, which is NULL while it is current. The history is computed again
from the versions that are stored and from rows that were read: a row that comes late is placed where it belongs, and one
that was read before changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ratify_lakehouse.sql.spark_sql import identifier

VALID_FROM, VALID_TO, CURRENT = "valid_from", "valid_to", "current"


@dataclass(frozen=True)
class RowHistory:
    """What the history of rows follows.

    Attributes:
        keys: Columns that identify a row, in all of its versions.
        updated_at: The column that says since when a row is as it is, a date or a timestamp; empty if none does. A version
            has its `valid_from` there.
        ignored: Columns whose change alone makes no version: a version has the values that were read last.
        close: Whether a row that is not there any more has no current version.
        lists: The input, as schema.table, of which each date has the full list of rows; empty if none is so. Then
            `updated_at` is the list's date, and all versions follow from the lists.
    """

    keys: tuple[str, ...]
    updated_at: str = ""
    ignored: tuple[str, ...] = ()
    close: bool = True
    lists: str = ""


def wanted_history(history: RowHistory, columns: Sequence[str], stored: str, rows: str, at: str, there: str = "") -> str:
    """Return the query, for Spark, for all versions that a table of history has to have.

    They are the stored ones and the rows, each from its time on; equal ones that follow each other are one version. Of a row
    and a version, or the end of one, at the same time the row counts. A row that no column dates is of the time `at`, or of
    the moment after all that is stored of its keys. Where the row of some keys was not there, and is there again, its newest
    version begins at `at`, however old it is. The column that dates a row says how old it was then, and so that `at` was not
    the row's own time: in later passes, too, such a version has the values of the newest row, if that is older than its
    beginning. Any other version stays beside a row that comes late.

    Args:
        history: What it follows.
        columns: The columns of the rows: keys, values, and the one that dates a row.
        stored: A relation, the versions that the table has: with these columns, `valid_from`, `valid_to` and `current`.
        rows: A relation with these columns; no two rows have the same keys and time, which is not NULL.
        at: An expression of the type of `valid_from`: the time of rows that no column dates. Versions whose row is not there
            end then; those that begin later end where they begin.
        there: A relation with the keys of all rows that are there; by default `rows`.
    """
    keys, listed = _listed(history.keys), _listed(columns)
    by, read = f"PARTITION BY {keys}", history.updated_at and identifier(history.updated_at)
    without = ", ".join(identifier(name) if name in history.keys else "NULL" for name in columns)
    tracked = [name for name in columns if name not in {*history.keys, *history.ignored, history.updated_at}]
    values = f"struct({_listed(tracked)})" if tracked else "true"
    last = f"max(CASE WHEN ratify_rank < 2 THEN ratify_at END) OVER ({by}) + INTERVAL 1 MICROSECOND"
    placed = "ratify_at" if read else f"CASE WHEN ratify_rank = 2 THEN greatest(ratify_at, {last}) ELSE ratify_at END"
    given = f"bool_or(ratify_rank = 3) OVER ({by})" if history.close else "true"
    follows = f"OVER ({by} ORDER BY ratify_at, ratify_rank)"
    same = f"ratify_there AND lag(ratify_there) {follows} AND {values} <=> lag({values}) {follows}"
    ended = f"lead({VALID_FROM}) OVER ({by} ORDER BY ratify_run)"
    closed = f"CASE WHEN NOT ratify_given THEN greatest({at}, {VALID_FROM}) END"
    # The time of the row with which a version begins, before that of the version where it began because the row came back.
    dated, begun = read or VALID_FROM, "min_by(ratify_dated, struct(ratify_at, ratify_rank))"
    # A point in time that follows the end which is the last one of its keys.
    newest = f"max(CASE WHEN ratify_rank = 2 THEN ratify_at END) OVER ({by})"
    final = f"max(struct(ratify_at, ratify_rank)) OVER ({by})"
    again = f"CASE WHEN ratify_final.ratify_rank = 1 THEN greatest({at}, ratify_final.ratify_at) ELSE ratify_returned END"
    returned = f"CASE WHEN {VALID_TO} IS NULL AND {dated} < {VALID_FROM} THEN {VALID_FROM} END"
    came = "CASE WHEN ratify_final.ratify_rank = 1 THEN ratify_dated ELSE ratify_came END"
    helpers = "ratify_newest, ratify_final, ratify_returned, ratify_came"
    shown = (
        f"ratify_dated AS {read}" if name == history.updated_at else f"ratify_row.{identifier(name)} AS {identifier(name)}"
        for name in columns
        if name not in history.keys
    )
    return f"""WITH ratify_stored AS (
  SELECT *, lead({VALID_FROM}) OVER ({by} ORDER BY {VALID_FROM}) AS ratify_next FROM {stored}
), ratify_points AS (
  SELECT {listed}, true AS ratify_there, 0 AS ratify_rank, {VALID_FROM} AS ratify_at, {dated} AS ratify_dated,
    {returned} AS ratify_again FROM ratify_stored
  UNION ALL SELECT {listed}, false, 1, {VALID_TO}, NULL, NULL FROM ratify_stored
    WHERE {VALID_TO} IS NOT NULL AND coalesce({VALID_TO} < ratify_next, true)
  UNION ALL SELECT {listed}, true, 2, {read or at}, {read or at}, NULL FROM {rows}
  UNION ALL SELECT DISTINCT {without}, true, 3, NULL, NULL, NULL FROM {there or rows}
), ratify_placed AS (
  SELECT * EXCEPT (ratify_at), {placed} AS ratify_at, {given} AS ratify_given FROM ratify_points
), ratify_known AS (
  SELECT * EXCEPT (ratify_again), {newest} AS ratify_newest, {final} AS ratify_final,
    max(ratify_again) OVER ({by}) AS ratify_returned,
    max(CASE WHEN ratify_again IS NOT NULL THEN ratify_dated END) OVER ({by}) AS ratify_came
  FROM ratify_placed WHERE ratify_rank < 3
), ratify_with_returned AS (
  SELECT * EXCEPT ({helpers}) FROM ratify_known
  UNION ALL SELECT * EXCEPT (ratify_dated, ratify_at, ratify_given, {helpers}), {came}, {again}, ratify_given
    FROM ratify_known
    WHERE ratify_rank = 2 AND ratify_at = ratify_newest
      AND (ratify_final.ratify_rank = 1 OR ratify_newest < ratify_returned)
), ratify_counting AS (
  SELECT *, max(ratify_rank) OVER ({by}, ratify_at) AS ratify_most FROM ratify_with_returned
), ratify_compared AS (
  SELECT *, CASE WHEN {same} THEN 0 ELSE 1 END AS ratify_begins FROM ratify_counting
  WHERE ratify_rank = 2 OR ratify_most < 2
), ratify_numbered AS (
  SELECT *, sum(ratify_begins) OVER ({by} ORDER BY ratify_at, ratify_rank ROWS UNBOUNDED PRECEDING) AS ratify_run
  FROM ratify_compared
), ratify_versions AS (
  SELECT {keys}, ratify_run, ratify_there, ratify_given, min(ratify_at) AS {VALID_FROM},
    max_by(struct({listed}), struct(ratify_rank, ratify_at)) AS ratify_row, {begun} AS ratify_dated
  FROM ratify_numbered GROUP BY {keys}, ratify_run, ratify_there, ratify_given
), ratify_ended AS (
  SELECT *, coalesce({ended}, {closed}) AS {VALID_TO} FROM ratify_versions
)
SELECT {", ".join([keys, *shown])}, {VALID_FROM}, {VALID_TO}, {VALID_TO} IS NULL AS {CURRENT}
FROM ratify_ended WHERE ratify_there"""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))
