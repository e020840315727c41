"""What a run of a stream did to its table, measured against the table before."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ratify_lakehouse.components.checks.table_changes import commits_after
from ratify_lakehouse.components.table_asset import TableChange, rows_version
from ratify_lakehouse.components.table_preview import preview_by_spark
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.spark.spark_engine import Spark


class TableBefore:
    """A table before the run, which the run's changes are measured against."""

    def __init__(self, table: TableDeclaration, version: int, rows: int) -> None:
        self.table = table
        self._version = version
        self._rows = rows
        self._began = time.monotonic()

    @classmethod
    def of(cls, spark: Spark, table: TableDeclaration, *, created: bool) -> "TableBefore":
        """Return a table as it is now; `created` says that this run has created it."""
        if created:
            return cls(table, -1, 0)
        version = spark.catalog.version(spark.full_name(table))
        return cls(table, version, spark.count(table, version))

    @classmethod
    def following(cls, table: TableDeclaration, change: TableChange) -> "TableBefore":
        """Return a table as a change left it, so that the next change misses no commit in between."""
        return cls(table, change.version, change.rows)

    def change(self, spark: Spark, ours: Callable[[Commit], bool], more: Mapping[str, Any]) -> TableChange:
        """Return what has happened since.

        Args:
            spark: Reads the table.
            ours: Whether this run made a commit; that of version 0 counts as made by it.
            more: Further metadata.
        """
        name = spark.full_name(self.table)
        latest = spark.catalog.version(name)
        history = commits_after(spark, name, self._version, latest) if latest > self._version else []
        version = history[0].version if history else self._version
        rows = spark.count(self.table, version) if history else self._rows
        return TableChange(
            version=version,
            rows_version=rows_version(spark, name, version),
            rows=rows,
            added=rows - self._rows,
            versions=sorted(commit.version for commit in history if commit.version == 0 or ours(commit)),
            last=history[0] if history else None,
            seconds=time.monotonic() - self._began,
            preview=preview_by_spark(spark, self.table),
            more=more,
        )
