"""A table with the history of the rows of its query (strategy `scd2`), and what a pass over it decides, whatever the engine.

A pass computes all rows of the query, and from them and from the versions that the table has those that it should have
(`wanted_history`). What differs is merged, in one commit that records the versions of the inputs. A pass computes nothing
where no input has a new version.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.incremental_pass import IncrementalPass, Inputs
from ratify_lakehouse.components.strategies.input_versions import InputVersions
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import QueryMismatch, UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.ingest.list_dates import LANDED_AT, LIST_DATE
from ratify_lakehouse.sql.listed_history import current_lists, listed_history
from ratify_lakehouse.sql.row_history import CURRENT, VALID_FROM, VALID_TO, RowHistory
from ratify_lakehouse.sql.table_query import TableName
from ratify_lakehouse.wording import keys_shown

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
        lists = f"-{self.history.lists}" if self.history.lists else ""
        closing = "close" if self.history.close else "ignore"
        return f"{super().code_version}-{self.history.updated_at}-{ignored}-{closing}{lists}"

    def query_column(self, name: str) -> str:
        """See `ValidatedQuery`: a version has its times from the column that says since when a row is as it is."""
        return {VALID_FROM: self.history.updated_at, VALID_TO: self.history.updated_at, CURRENT: ""}.get(name, name)

    def added_columns(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> Sequence[Column]:
        """See `ValidatedQuery`.

        Raises:
            QueryMismatch: what says since when a row is as it is, is neither a date nor a timestamp.
        """
        dating = self.history.updated_at
        of_time = types[dating] if dating else "timestamp"
        if of_time not in ("date", "timestamp"):
            raise QueryMismatch(
                f"{self.declaration.table_name}, column {dating}: it says since when a row is valid, but is a {of_time}: "
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
                f"the query returns {clashing[0]}, a column that the strategy scd2 adds: rename it in the query.", "strategy"
            )
        dated_by = "from_snapshots" if self.history.lists else "updated_at"
        # Before the keys, one of which dates a row.
        named = [
            *([(self.history.updated_at, dated_by)] if self.history.updated_at else []),
            *((name, "ignore", number) for number, name in enumerate(self.history.ignored)),
        ]
        for name, *field in named:
            if name not in found or name in self.intermediate:
                raise UnsafeDeclaration(
                    f"{name!r} is not a column of the table, whose query returns {', '.join(found)}.", "history", *field
                )
        super()._check_columns(found)


class HistoryScope(IncrementalPass[Inputs]):
    """Decides what a pass over the history of a table computes: all rows, or none where no input has a new version."""

    _history: RowHistory

    def lists_in(self, relation: str, name: TableName, columns: Sequence[str]) -> str:
        """Return the query, for Spark, for the lists that count in an input; empty if it has none.

        Args:
            relation: The input, in the words of Spark.
            name: The input.
            columns: Those that it has.

        Raises:
            QueryMismatch: the declaration says that it has lists, and it has not.
        """
        if not self._history.lists or self._history.lists.casefold() != f"{name.schema}.{name.table}".casefold():
            return ""
        wanted = (LIST_DATE, LANDED_AT, LOAD_COLUMNS[0].name)
        if lacking := [column for column in wanted if column not in columns]:
            table = self._table.declaration.table_name
            raise QueryMismatch(
                f"{table}: {self._history.lists} has no column {lacking[0]}, and so no full lists. Name under "
                "`from_snapshots` a table of landed files with `contents: snapshot`, which adds it."
            )
        return current_lists(relation, *wanted)

    def declared_beside(self) -> list[Any]:
        """See `IncrementalPass`."""
        return [self._history]

    def scope(self, record: ComputedInputs, declaration: TableDeclaration, text: str) -> Scope:
        """See `IncrementalPass`."""
        last, why = self._since(record, declaration)
        return Scope(declaration.keys, why, record, last, changed=None if why else {}, shown={"strategy": "scd2"})

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """See `IncrementalPass`."""
        record = self.record(declaration)
        return PassPlan.of(record, *self._since(record, declaration))

    def _since(self, record: ComputedInputs, declaration: TableDeclaration) -> tuple[ComputedInputs | None, str]:
        """The record that the table has, and why its history is computed; empty where no input has a new version."""
        last: ComputedInputs | None = None
        try:
            last = known = self._with_quarantine(self._last(record, declaration), declaration)
            self._inputs.check(known)
        except FullRecompute as reason:
            return last, str(reason)
        return known, _MOVED if known.inputs != record.inputs else ""


def columns_read(declaration: TableDeclaration) -> list[str]:
    """Return the columns of a table of history that its query gives."""
    return [name for name in declaration.column_names if name not in (VALID_FROM, VALID_TO, CURRENT)]


def versions_of_lists(declaration: TableDeclaration, history: RowHistory, rows: str, there: str, dates: str) -> str:
    """Return the query, for Spark, for all versions of a table whose history comes from full lists.

    The columns that say how a row was loaded make no version, as each list has others.

    Args:
        declaration: The table.
        history: What it follows.
        rows: The accepted rows.
        there: The keys and dates of all rows.
        dates: The dates of the lists.
    """
    loading = (LANDED_AT, *(column.name for column in LOAD_COLUMNS))
    followed = replace(history, ignored=(*history.ignored, *loading))
    return listed_history(followed, columns_read(declaration), rows, there, dates, declaration.column_types[VALID_FROM])


def check_dated(
    history: RowHistory,
    declaration: TableDeclaration,
    rows: str,
    records: Callable[[str], Sequence[Mapping[str, Any]]],
    sql: RuleDialect,
) -> None:
    """Check that it is known since when each row is as it is.

    Args:
        history: What the table's history follows.
        declaration: The table.
        rows: The query for the rows.
        records: Runs a query, and returns its rows.
        sql: The words of the engine that runs it.

    Raises:
        QueryMismatch: it is not; nothing was written.
    """
    if not history.updated_at:
        return
    undated = (
        f"SELECT {sql.listed(history.keys)} FROM ({rows}) WHERE {sql.identifier(history.updated_at)} IS NULL "
        f"LIMIT {_SHOWN_KEYS}"
    )
    if found := records(undated):
        shown = keys_shown(found, history.keys, declaration.personal)
        raise QueryMismatch(
            f"{declaration.table_name}: {history.updated_at} is NULL in rows such as {shown}, so it is unknown since when "
            "they are valid. Nothing was written: give them a time in the query, or drop them by an expectation."
        )


def time_of_inputs(spark: Spark, history: RowHistory, declaration: TableDeclaration, inputs: InputVersions) -> str:
    """Return the time of what no column dates: that of the newest commit which the inputs have at the versions read.

    Args:
        spark: Knows the commits.
        history: What the table's history follows.
        declaration: The table.
        inputs: The versions.

    Raises:
        QueryMismatch: the commits of one cannot be read; nothing was written.
    """
    of_time = declaration.column_types[VALID_FROM]
    if history.updated_at and not history.close:
        return f"CAST(NULL AS {of_time})"
    newest = dt.datetime.fromtimestamp(0, dt.UTC)
    for name, read in inputs.versions.items():
        commits = spark.recent_commits(name, EVERY_COMMIT) if read.version >= 0 else iter(())
        commit = next((each for each in commits if each.version == read.version), None)
        if commit is None:
            raise QueryMismatch(
                f"{declaration.table_name}: when {name} changed is unknown, because its commits cannot be read. Nothing "
                "was written: name under `history` a column as updated_at, with invalidate_hard_deletes: false."
            )
        newest = max(newest, commit.timestamp)
    return f"CAST(TIMESTAMP '{newest.astimezone(dt.UTC).isoformat(sep=' ')}' AS {of_time})"
