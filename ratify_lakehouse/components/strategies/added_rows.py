"""The rows that a table got after a version, where some later versions may have deleted rows.

The strategy `append`, of tables and of syncs, takes each row of a table once, and cannot follow rows that change.
A deletion that somebody acknowledged, as each erasure of a subject is, changes nothing for it: rows that were taken before
stay where they are, and rows that were deleted before they were taken are not taken.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged_in
from ratify_lakehouse.delta.commit_history import COLUMNS_MOVED, Commit
from ratify_lakehouse.errors import HistoryNotContinued
from ratify_lakehouse.sql.spark_sql import identifier

_VERSION = "ratify_version"


@dataclass(frozen=True)
class AddedRange:
    """Versions of a table that added rows, apart from those that deleted some.

    Attributes:
        since: The version before them.
        until: The last one.
        deletions: Those that deleted rows, in their order.
    """

    since: int
    until: int
    deletions: tuple[int, ...] = ()

    @property
    def adds(self) -> bool:
        """Whether there are other versions than deletions."""
        return self.until - self.since > len(self.deletions)


def added_range(
    full_name: str, since: int, until: int, rewrites: Iterable[Commit], acknowledged: Callable[[], Collection[int]]
) -> AddedRange:
    """Return what a table's versions after one did.

    Args:
        full_name: The table, as catalog.schema.table.
        since: The version.
        until: The last version.
        rewrites: Those of them that did other than add rows, oldest first.
        acknowledged: Finds the versions of the table that were acknowledged after they were made.

    Raises:
        HistoryNotContinued: one did other than add rows, or than delete rows in an acknowledged commit.
    """
    deletions, known = list[int](), None
    for commit in rewrites:
        deletes = commit.only_deletes_rows
        if deletes and not acknowledged_in([commit]):
            known = acknowledged() if known is None else known
            deletes = commit.version in known
        if not deletes:
            raise HistoryNotContinued(_reason(full_name, commit))
        deletions.append(commit.version)
    return AddedRange(since, until, tuple(deletions))


def _reason(full_name: str, commit: Commit) -> str:
    if commit.operation in COLUMNS_MOVED:
        return (
            f"{commit.operation}, version {commit.version} of {full_name}, renamed or dropped columns, so it is unknown "
            "which of its rows were already appended."
        )
    text = (
        f"{commit.operation}, version {commit.version} of {full_name}, did not only add rows, and rows of earlier "
        "versions were already appended."
    )
    if not commit.only_deletes_rows:
        return text
    return f"{text} If those may stay, `ratify acknowledge {full_name} {commit.version} --reason …` lets it continue."


def compared_sql(found: AddedRange, columns: Sequence[str], at: Callable[[int], str]) -> str:
    """Return the query for the added rows, for Spark SQL, by comparing versions of the table.

    Args:
        found: The versions, of which some add rows.
        columns: Of the rows.
        at: Returns the query for these columns as of a version.
    """

    def without(version: int, after: int, before: int) -> str:
        return f"SELECT {version} AS {_VERSION}, * FROM ({at(after)} EXCEPT ALL {at(before)})"

    starts, ends = (found.since, *found.deletions), (*(version - 1 for version in found.deletions), found.until)
    added = (without(end, end, start) for start, end in zip(starts, ends, strict=True) if start < end)
    deleted = (without(version, version - 1, version) for version in found.deletions)
    return _never_deleted(" UNION ALL ".join(added), " UNION ALL ".join(deleted), columns)


def feed_sql(found: AddedRange, columns: Sequence[str], changes: str) -> str:
    """Return the query for the added rows, for Spark SQL, from the change data feed.

    Args:
        found: The versions.
        columns: Of the rows.
        changes: The feed of these versions.
    """
    listed = ", ".join(map(identifier, columns))
    if not found.deletions:
        return f"SELECT {listed} FROM {changes}"
    rows = f"SELECT _commit_version AS {_VERSION}, {listed} FROM {changes} WHERE _change_type"
    return _never_deleted(f"{rows} <> 'delete'", f"{rows} = 'delete'", columns)


def _never_deleted(added: str, deleted: str, columns: Sequence[str]) -> str:
    """The added rows that were not deleted since: a deletion takes all rows that are equal."""
    listed = ", ".join(f"a.{identifier(column)}" for column in columns)
    equal = "".join(f" AND a.{identifier(column)} <=> d.{identifier(column)}" for column in columns)
    if not deleted:
        return f"SELECT {listed} FROM ({added}) AS a"
    return f"SELECT {listed} FROM ({added}) AS a LEFT ANTI JOIN ({deleted}) AS d ON d.{_VERSION} > a.{_VERSION}{equal}"
