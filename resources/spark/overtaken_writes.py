"""Writes of Spark that commits to their table, or an erasure, have overtaken since their rows were read."""

from typing import TYPE_CHECKING

from resources.delta.commit_history import Commit
from resources.delta.computed_inputs import computed_in
from resources.delta.erasure_fence import refuse_fenced
from resources.errors import Overtaken, TableMissing

if TYPE_CHECKING:
    from resources.spark.spark_engine import Spark


def refuse_overtaken(spark: "Spark", full_name: str, after: int, until: int | None = None) -> None:
    """Refuse rows that were computed against a version of a table; `until` is that of their own commit, if there is one.

    Raises:
        Overtaken: it was computed, or restored, after that version.
        ReadBeforeErasure: see `refuse_erased`.
    """
    newer = [commit for commit in _newer(spark, full_name, after) if until is None or commit.version < until]
    refuse_fenced(full_name, newer)
    if computed_in(newer):
        raise Overtaken(f"Another writer of {full_name} committed after version {after} first.")


def refuse_erased(spark: "Spark", full_name: str, after: int) -> None:
    """Refuse rows that were read when a table had a version.

    Raises:
        ReadBeforeErasure: an erasure has fenced it since.
    """
    refuse_fenced(full_name, _newer(spark, full_name, after))


def _newer(spark: "Spark", full_name: str, after: int) -> list[Commit]:
    try:
        number = spark.catalog.version(full_name) - after
    except TableMissing:
        return []
    return [*spark.recent_commits(full_name, number)] if number > 0 else []
