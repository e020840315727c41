"""A table to which the rows of new versions of an input are appended, once (strategy `append`), whatever the engine.

The last commit of the table says up to which version of the input it has taken rows (`last_position`). A pass computes the
query over the rows that the input got since, with all other inputs as they are now, and appends what it gives, in one commit
that records the version up to which it has read. What was appended stays as it is.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic
from uuid import uuid4

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.incremental_pass import Inputs
from ratify_lakehouse.components.strategies.pass_metadata import pass_metadata
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.append_only import refuse_append_only
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, TablePosition, last_position
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued, QueryMismatch, TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from ratify_lakehouse.wording import keys_shown

_CHANGED_QUERY = (
    "its query or declaration has changed since its last commit: existing rows stay as they are, and only new ones use "
    "the new query. Materialize with full_refresh: true to recompute all of them"
)


ASKED_FOR = "a full refresh was asked for"


class RefreshConfig(dg.Config):
    """How a table that goes on from its last commit is brought up to date."""

    full_refresh: bool = Field(
        default=False, description="Replace all rows of the table with those its query returns now, in one commit"
    )


class AppendPass(Generic[Inputs]):
    """One pass over a table; an engine adds how it reads, computes and writes."""

    catalog: UnityCatalog
    _spark: Spark
    _inputs: Inputs

    def begin(self, table: ValidatedQuery, driving: TableName, *, full_refresh: bool, planned: bool) -> None:
        """Note what the pass is over, and up to where the table has the input's rows.

        Args:
            table: The table, without keys.
            driving: The input, which the query reads row by row.
            full_refresh: Replace what the table has by the rows for all rows of the input.
            planned: Only the plan is asked: no row of an input is read.

        Raises:
            HistoryNotContinued: it is not known which rows the table has.
            UnsafeTable: a full refresh, and the table only allows appends.
        """
        self._table, self._driving, self._refresh, self._planned = table, driving, full_refresh, planned
        if full_refresh:
            self._refuse_append_only()
        self._position = self._last_position()
        self._record: ComputedInputs | None = None

    def _refuse_append_only(self) -> None:
        full_name = self._spark.full_name(self._table.declaration)
        with suppress(TableMissing):
            refuse_append_only(full_name, self.catalog.table(full_name).properties or {})

    def _last_position(self) -> TablePosition:
        declaration = self._table.declaration
        full_name = self._spark.full_name(declaration)
        try:
            self.catalog.version(full_name)
        except TableMissing:
            return TablePosition(None, -1)
        try:
            return last_position(self._spark.recent_commits(full_name, EVERY_COMMIT))
        except FullRecompute as reason:
            if self._refresh:
                return TablePosition(None, self.catalog.version(full_name))
            raise _not_continued(declaration, f"{reason}.") from None

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. Of the driving input these are the rows that it got since the last commit."""
        every, last = self._inputs.relation(name, columns), self._position.record
        if name != self._driving or last is None or self._refresh:
            return every
        since = last.inputs.get(self._inputs.full_name(name))
        try:
            if self._planned:
                self._inputs.added_range(name, since)
                return every
            return self._inputs.added(name, columns, since)
        except HistoryNotContinued as error:
            # The text of the error has all of its cause's.
            raise _not_continued(self._table.declaration, str(error)) from None

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: the rows of the new rows of the driving input, which the text reads already."""
        self._record = self._now(declaration)
        return text

    def _now(self, declaration: TableDeclaration) -> ComputedInputs:
        """The record of the pass."""
        declared = self._table.expectations.code(self._table.query.text), declaration.column_types, str(self._driving)
        digest = hashlib.sha256(repr(declared).encode()).hexdigest()
        return ComputedInputs(digest, self._position.version, self._inputs.versions, uuid4().hex)

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """Return what the pass would do, from what the catalog and the logs say: nothing is computed."""
        now, last, driving = self._now(declaration), self._position.record, self._inputs.full_name(self._driving)
        if last is None:
            return PassPlan.of(now, None, "no commit of it has rows of an input yet")
        computes = "new rows" if last.inputs[driving] != now.inputs[driving] else "nothing"
        return replace(PassPlan.of(now, last, _CHANGED_QUERY if last.query != now.query else ""), computes=computes)

    @property
    def appended(self) -> "PassToAppend":
        """Return what the pass appends, and after what.

        Raises:
            ValueError: it has not been asked yet what to compute.
        """
        if self._record is None:
            raise ValueError("it is unknown what to compute")
        return PassToAppend(self._position, self._record, self._table.row_keys, self._far_behind, full_refresh=self._refresh)

    def _far_behind(self) -> bool:
        """Whether the driving input has versions that are to be recorded as read."""
        last = None if self._refresh else self._position.record
        since = last.inputs.get(self._inputs.full_name(self._driving)) if last else None
        return since is not None and self._inputs.far_behind(self._driving, since.version)


@dataclass(frozen=True)
class PassToAppend:
    """Holds what a pass appends, and after what.

    Attributes:
        position: Up to where the table had taken its inputs.
        record: For the commit.
        keys: Columns that identify a row of the query; empty if none do.
        far_behind: Whether versions that gave no row are to be recorded as read.
        full_refresh: Whether all rows are replaced.
    """

    position: TablePosition
    record: ComputedInputs
    keys: Sequence[str]
    far_behind: Callable[[], bool]
    full_refresh: bool

    @property
    def every(self) -> bool:
        """Return whether all rows of the query are computed."""
        return self.full_refresh or self.position.record is None

    def shown(self, declaration: TableDeclaration, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of the materialization; `more`: further ones."""
        last, now = self.position.record, self.record
        why_full = ASKED_FOR if self.full_refresh else "" if last else "the table is new"
        shown = {**more, **pass_metadata(now.inputs, last, why_full, None), "strategy": "append"}
        if last and last.query != now.query and not self.full_refresh:
            shown["continued although"] = _CHANGED_QUERY
            dg.get_dagster_logger().warning(f"{declaration.table_name} continued although {_CHANGED_QUERY}.")
        return shown

    def check_new(
        self,
        declaration: TableDeclaration,
        rows: str,
        stored: str,
        records: Callable[[str], Sequence[Mapping[str, Any]]],
        sql: RuleDialect,
    ) -> None:
        """Check that a table has no row with the keys of a new one.

        Args:
            declaration: The table.
            rows: The query for the new rows.
            stored: The table's name, in SQL.
            records: Runs a query, and returns its rows.
            sql: The words of the engine that runs it.

        Raises:
            QueryMismatch: it has some; nothing was written.
        """
        if self.full_refresh or not self.keys:
            return
        listed = ", ".join(f"n.{sql.identifier(key)}" for key in self.keys)
        same = sql.same(self.keys, "n", "t")
        found = records(f"SELECT {listed} FROM ({rows}) AS n SEMI JOIN {stored} AS t ON {same} LIMIT 3")
        if found:
            shown = keys_shown(found, self.keys, declaration.personal)
            raise QueryMismatch(
                f"{declaration.table_name}: the table already has rows with the keys of new ones: {shown}. Nothing was "
                "written: use the strategy incremental, whose rows change, or declare no keys."
            )


def _not_continued(declaration: TableDeclaration, reason: str) -> HistoryNotContinued:
    return HistoryNotContinued(
        f"{declaration.table_name} cannot continue from its last commit: {reason} Nothing was written. Materialize with "
        "full_refresh: true to replace its rows with those its query returns now; if rows of an input change, use the "
        "strategy incremental."
    )
