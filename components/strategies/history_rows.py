"""Spark as the engine of a table with the history of the rows of its query (strategy `scd2`).

A pass computes all rows of the query, and from them and from the versions that the table has those that it should have
(`wanted_history`). What differs is merged, in one commit that records the versions of the inputs, as `changed_rows` does. A
pass computes nothing where no input has a new version.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from components.query_engines import ValidatedRows
from components.sql_table import ValidatedQuery
from components.strategies.changed_rows import ChangedRows
from components.strategies.computed_rows import ComputedRows
from components.strategies.pass_plan import PassPlan
from components.strategies.pass_results import materialize_passes
from components.strategies.pass_scope import Scope
from resources.declarations import Column, TableDeclaration
from resources.delta.commit_history import EVERY_COMMIT
from resources.delta.computed_inputs import ComputedInputs, FullRecompute
from resources.errors import CommitConflict, QueryMismatch, UnsafeDeclaration
from resources.spark.spark_engine import Spark
from resources.spark.write_result import WriteResult
from resources.sql.row_history import CURRENT, VALID_FROM, VALID_TO, RowHistory, wanted_history
from resources.sql.spark_sql import at_version, identifier
from resources.wording import keys_shown

_SHOWN_KEYS = 3
_MOVED = "an input has a new version"


@dataclass(frozen=True, kw_only=True)
class HistoryQuery(ValidatedQuery):
    """A table with the history of the rows of a query; its keys are those of a row, and `valid_from`.

    Attributes:
        history: What it follows.

    Raises:
        UnsafeDeclaration: the query has a column of the history's, or lacks one that the history names.
        As ValidatedQuery.
    """

    history: RowHistory

    @property
    def code_version(self) -> str:
        """See `ValidatedQuery`."""
        ignored = ",".join(self.history.ignored)
        return f"{super().code_version}-{self.history.changed_at}-{ignored}-{'close' if self.history.close else 'ignore'}"

    def query_column(self, name: str) -> str:
        """See `ValidatedQuery`: a version has its times from the column that says since when a row is as it is."""
        return {VALID_FROM: self.history.changed_at, VALID_TO: self.history.changed_at, CURRENT: ""}.get(name, name)

    def added_columns(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> Sequence[Column]:
        """See `ValidatedQuery`.

        Raises:
            QueryMismatch: what says since when a row is as it is, is neither a date nor a timestamp.
        """
        dating = self.history.changed_at
        of_time = types[dating] if dating else "timestamp"
        if of_time not in ("date", "timestamp"):
            raise QueryMismatch(
                f"{self.declaration.table_name}, column {dating}: it says since when a row is as it is, and is a {of_time}: "
                f"write CAST(… AS TIMESTAMP) AS {dating}, or CAST(… AS DATE), in the query."
            )
        return (
            Column(VALID_FROM, of_time, "Since when the row is so", lineage.get(dating, ())),
            Column(VALID_TO, of_time, "Until when it was so; NULL while it is"),
            Column(CURRENT, "boolean", "Whether it is so"),
        )

    def _check_columns(self, found: Sequence[str] | Mapping[str, str]) -> None:
        if clashing := [name for name in found if name.lower() in (VALID_FROM, VALID_TO, CURRENT)]:
            raise UnsafeDeclaration(
                f"the query gives {clashing[0]}, a column that the strategy scd2 adds: rename it in the query.", "strategy"
            )
        # Before the keys, one of which dates a row.
        named = [
            *([(self.history.changed_at, "changed_at")] if self.history.changed_at else []),
            *((name, "ignore", number) for number, name in enumerate(self.history.ignored)),
        ]
        for name, *field in named:
            if name not in found or name in self.helpers:
                raise UnsafeDeclaration(
                    f"{name!r} is no column of the table, whose query gives {', '.join(found)}.", "history", *field
                )
        super()._check_columns(found)


def materialize_history(spark: Spark, table: HistoryQuery) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Bring the history of a query's rows up to date.

    Args:
        spark: The session.
        table: The table.

    Raises:
        QueryMismatch: it is not known since when a row is as it is.
        As sql_table.materialize.
    """
    yield from materialize_passes(spark, table, lambda: HistoryPass(spark, table), follows_inputs=True)


class HistoryPass(ChangedRows):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: HistoryQuery) -> None:
        super().__init__(spark, table)
        self._history = table.history

    def declared_beside(self) -> list[Any]:
        """See `ChangedRows`."""
        return [self._history]

    def scope(self, record: ComputedInputs, declaration: TableDeclaration, text: str) -> Scope:
        """See `ChangedRows`: all rows, or none where no input has a new version."""
        last, why = self._since(record, declaration)
        return Scope(declaration.keys, why, record, last, changed=None if why else {}, shown={"strategy": "scd2"})

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """See `ChangedRows`."""
        record = self.record(declaration)
        return PassPlan.of(record, *self._since(record, declaration))

    def _since(self, record: ComputedInputs, declaration: TableDeclaration) -> tuple[ComputedInputs | None, str]:
        """The record that the table has, and why its history is computed; empty where no input has a new version."""
        last: ComputedInputs | None = None
        try:
            last = self._with_quarantine(self._last(record, declaration), declaration)
            self._inputs.check(last)
        except FullRecompute as reason:
            return last, str(reason)
        return last, _MOVED if last.inputs != record.inputs else ""

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        with super().validated(text) as rows:
            if not isinstance(rows, ComputedRows):
                raise TypeError("a pass computes rows")
            yield HistoryRows(rows.spark, rows.frame, rows.scope, rows.inputs, rows.before, self._history)


@dataclass(frozen=True)
class HistoryRows(ComputedRows):
    """The rows that a pass has computed, of which the table gets the history."""

    history: RowHistory

    def write(self, tables: Sequence[tuple[TableDeclaration, str]], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        """See `ValidatedRows`.

        Raises:
            QueryMismatch: it is not known since when a row is as it is; nothing was written.
        """
        declaration, sql = tables[0]
        if dating := self.history.changed_at:
            keys = ", ".join(map(identifier, self.history.keys))
            undated = f"SELECT {keys} FROM ({sql}) WHERE {identifier(dating)} IS NULL LIMIT {_SHOWN_KEYS}"
            if found := self.records(undated):
                shown = keys_shown(found, self.history.keys, declaration.personal)
                raise QueryMismatch(
                    f"{declaration.table_name}: {dating} is NULL in rows such as {shown}, so that it is not known since "
                    f"when they are so. Nothing was written: give them a time in the query, or drop them by an expectation."
                )
        if self.frame is not None:
            # Raises its error before the table is created.
            self._at(declaration)
        yield from super().write(tables, **more)

    def _previewed(self, sql: str) -> None:
        return None

    def _merge(self, declaration: TableDeclaration, sql: str, record: ComputedInputs) -> WriteResult:
        if self.frame is None:
            return self.spark.write_result(declaration, None)
        after, keys = max(record.after, 0), ", ".join(map(identifier, self.history.keys))
        stored = at_version(self.spark.sql_name(declaration), after)
        # It may just have got columns of this query.
        self._check_version(declaration, after)
        columns = [name for name in declaration.column_names if name not in (VALID_FROM, VALID_TO, CURRENT)]
        wanted = wanted_history(
            self.history, columns, stored, f"({sql})", self._at(declaration), f"(SELECT {keys} FROM {{rows}})"
        )
        rows = self.spark.query(wanted, rows=self.frame)
        differing = self._differing(declaration, rows, f"SELECT * FROM {stored}")
        if differing is None:
            return self.spark.write_result(declaration, None)
        self._check_version(declaration, after)
        return self.spark.merge_changes(declaration, differing, replace(record, after=after).to_json(), after)

    def _check_version(self, declaration: TableDeclaration, version: int) -> None:
        full_name = self.spark.full_name(declaration)
        if self.spark.catalog.version(full_name) != version:
            raise CommitConflict(f"Another writer of {full_name} committed after its version {version}.")

    def _at(self, declaration: TableDeclaration) -> str:
        """The time of what no column dates: that of the newest commit which the inputs have at the versions read."""
        of_time = declaration.column_types[VALID_FROM]
        if self.history.changed_at and not self.history.close:
            return f"CAST(NULL AS {of_time})"
        newest = 0
        for name, read in self.inputs.versions.items():
            commits = self.spark.recent_commits(name, EVERY_COMMIT) if read.version >= 0 else iter(())
            commit = next((each for each in commits if each.version == read.version), None)
            if commit is None:
                raise QueryMismatch(
                    f"{declaration.table_name}: when {name} changed is not known, because its commits cannot be read. "
                    "Nothing was written: name under `history` a column as changed_at, with deleted: ignore."
                )
            newest = max(newest, round(commit.timestamp.timestamp() * 1_000_000))
        return f"CAST(timestamp_micros({newest}) AS {of_time})"
