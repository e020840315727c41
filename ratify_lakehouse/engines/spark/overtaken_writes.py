"""Writes of Spark that commits to their table, or an erasure, have overtaken since their rows were read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import computed_in
from ratify_lakehouse.delta.erasure_fence import ERASED, refuse_fenced
from ratify_lakehouse.errors import Overtaken, TableMissing

if TYPE_CHECKING:
    from ratify_lakehouse.engines.spark.spark_engine import Spark


def note_missing(spark: "Spark", before: Mapping[str, int]) -> None:
    """Note the version of the list of erased subjects for tables that are missing, before the rows are read that they get.

    Args:
        spark: Writes them.
        before: The versions of all tables that are written, by full name; -1 of one that is missing.
    """
    for full_name, version in before.items():
        spark.listed_before.pop(full_name, None)
        if version < 0:
            spark.listed_before[full_name] = _version(spark, _erased(spark))


def versions_before(spark: "Spark", *full_names: str) -> Mapping[str, int]:
    """Return the versions that tables have before the rows are read that they get; -1 of one that is missing.

    What an erasure does to them from now on refuses the rows (see `refuse_erased`).
    """
    found = {full_name: _version(spark, full_name) for full_name in full_names}
    note_missing(spark, found)
    return found


def refuse_overtaken(spark: "Spark", full_name: str, after: int, until: int | None = None) -> None:
    """Refuse rows that were computed against a version of a table; `until` is that of their own commit, if there is one.

    Raises:
        Overtaken: it was computed, or restored, after that version.
        ReadBeforeErasure: see `refuse_erased`.
    """
    newer, committed = _without_fence(spark, full_name, after, until)
    if computed_in(newer):
        raise Overtaken(f"Another writer committed to {full_name} after version {after} first.", committed)


def refuse_erased(spark: "Spark", full_name: str, after: int, until: int | None = None) -> None:
    """Refuse rows that were read when a table had a version; `until` is that of their own commit, if there is one.

    Raises:
        ReadBeforeErasure: an erasure has fenced it since; or it was missing, and one has fenced its list.
    """
    _without_fence(spark, full_name, after, until)


def _without_fence(
    spark: "Spark", full_name: str, after: int, until: int | None
) -> tuple[list[Commit], tuple[str, int] | None]:
    """The commits after a version and before the rows' own, none of which is a fence, and `committed` of an `Overtaken`."""
    newer = [commit for commit in _newer(spark, full_name, after) if until is None or commit.version < until]
    committed = None if until is None else (full_name, until)
    refuse_fenced(full_name, [*newer, *_newer_erasures(spark, full_name)], committed)
    return newer, committed


def _newer_erasures(spark: "Spark", full_name: str) -> list[Commit]:
    listed = spark.listed_before.get(full_name)
    return [] if listed is None else _newer(spark, _erased(spark), listed)


def _newer(spark: "Spark", full_name: str, after: int) -> list[Commit]:
    number = _version(spark, full_name) - after
    return [*spark.recent_commits(full_name, number)] if number > 0 else []


def _version(spark: "Spark", full_name: str) -> int:
    try:
        return spark.catalog.version(full_name)
    except TableMissing:
        return -1


def _erased(spark: "Spark") -> str:
    return f"{spark.catalog.connection.name}.{ERASED}"
