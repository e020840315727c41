"""Spark as the engine of a table to which the rows of new versions of an input are appended, once (strategy `append`).

The last commit of the table says up to which version of the input it has taken rows (`last_position`). A pass computes the
query over the rows that the input got since, with all other inputs as they are now, and appends what it gives, in one commit
that records the version up to which it has read. What was appended stays as it is.
"""

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import dagster as dg
from pydantic import Field

from components.expectations.expectation_rules import Expectations
from components.query_engines import SparkQueries, SparkRows, ValidatedRows
from components.sql_table import ValidatedQuery, resolve
from components.strategies.computed_rows import failing_stored
from components.strategies.pass_metadata import pass_metadata
from components.strategies.pass_plan import PassPlan
from components.strategies.pass_results import materialize_passes
from components.strategies.query_inputs import QueryInputs
from components.table_asset import materialize_by
from resources.declarations import TableDeclaration
from resources.delta.append_only import refuse_append_only
from resources.delta.commit_history import EVERY_COMMIT
from resources.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion, TablePosition, last_position
from resources.errors import HistoryNotContinued, QueryMismatch, TableMissing
from resources.spark.commit_conf import FULL_REFRESH
from resources.spark.interpreted_queries import FEW_ROWS, FEW_ROWS_SEARCHED
from resources.spark.merge_statements import insert_sql
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import identifier, same_keys
from resources.sql.table_query import TableName, TableQuery
from resources.wording import keys_shown

_CHANGED_QUERY = (
    "its query or its declaration is another than that of its last commit: rows that it has stay as they are, and new ones "
    "are computed by the new one. A materialization with full_refresh: true computes all of them again"
)


class RefreshConfig(dg.Config):
    """How a table that goes on from its last commit is brought up to date."""

    full_refresh: bool = Field(
        default=False, description="Replace all rows of the table by those that its query gives now, in one commit"
    )


def materialize_appended(
    spark: Spark, table: ValidatedQuery, driving: TableName, *, full_refresh: bool = False
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Append the rows that a table's query gives for the new rows of an input.

    Args:
        spark: The session.
        table: The table, without keys.
        driving: The input, which the query reads row by row.
        full_refresh: Replace what the table has by the rows for all rows of the input.

    Raises:
        HistoryNotContinued: the input did not only get rows, or it is not known which ones the table has.
        UnsafeTable: a full refresh, and the table only allows appends.
        As materialize.
    """
    yield from materialize_passes(spark, table, lambda: AppendedRows(spark, table, driving, full_refresh=full_refresh))


def plan_appended(spark: Spark, table: ValidatedQuery, driving: TableName) -> PassPlan:
    """Return what the next pass would do, from what the catalog and the logs say: nothing is computed.

    Raises:
        HistoryNotContinued, QueryMismatch, TableMissing: it would fail.
    """
    one = _PlannedRows(spark, table, driving)
    return one.plan(resolve(one, table).declaration)


class AppendedRows(SparkQueries):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery, driving: TableName, *, full_refresh: bool = False) -> None:
        super().__init__(spark, table.query, table.declaration)
        self._table, self._driving, self._refresh = table, driving, full_refresh
        if full_refresh:
            self._refuse_append_only()
        self._inputs = QueryInputs(spark, table.query)
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
        last = self._position.record
        if name != self._driving or last is None or self._refresh:
            return self._inputs.relation(name, columns)
        try:
            return self._new_rows(name, columns, last.inputs.get(self._inputs.full_name(name)))
        except HistoryNotContinued as error:
            # The text of the error has all of its cause's.
            raise _not_continued(self._table.declaration, str(error)) from None

    def _new_rows(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        return self._inputs.added(name, columns, since)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: the rows of the new rows of the driving input, which the text reads already."""
        self._record = self._now(declaration)
        return text

    def _now(self, declaration: TableDeclaration) -> ComputedInputs:
        """The record of the pass."""
        declared = self._table.expectations.code(self._table.query.text), declaration.column_types, str(self._driving)
        digest = hashlib.sha256(repr(declared).encode()).hexdigest()
        return ComputedInputs(digest, self._position.version, self._inputs.versions, uuid4().hex)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._record is None:
            raise ValueError("it is not known what to compute")
        every = self._refresh or self._position.record is None
        with self.few_rows(FEW_ROWS if every else FEW_ROWS_SEARCHED):
            frame = self._spark.computed(self._spark.sql(text))
            at = self._before, self._position, self._record
            keys, refresh = self._table.row_keys, self._refresh
            yield _NewRows(self._spark, frame, *at, keys, self._far_behind, full_refresh=refresh)

    def _far_behind(self) -> bool:
        """Whether the driving input has versions that are to be recorded as read."""
        last = None if self._refresh else self._position.record
        since = last.inputs.get(self._inputs.full_name(self._driving)) if last else None
        return since is not None and self._inputs.far_behind(self._driving, since.version)


class _PlannedRows(AppendedRows):
    """A pass of which only the plan is asked: no row of an input is read."""

    def _new_rows(self, name: TableName, columns: Sequence[str], since: InputVersion | None) -> str:
        every = self._inputs.relation(name, columns)
        self._inputs.added_range(name, since)
        return every

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """Return the plan."""
        now, last, driving = self._now(declaration), self._position.record, self._inputs.full_name(self._driving)
        if last is None:
            return PassPlan.of(now, None, "no commit of it has rows of an input yet")
        computes = "new rows" if last.inputs[driving] != now.inputs[driving] else "nothing"
        return replace(PassPlan.of(now, last, _CHANGED_QUERY if last.query != now.query else ""), computes=computes)


@dataclass(frozen=True)
class _NewRows(SparkRows):
    """The rows that a pass has computed."""

    position: TablePosition
    record: ComputedInputs
    keys: Sequence[str]
    far_behind: Callable[[], bool]
    full_refresh: bool

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
        return failing_stored(self.spark, expectations, written)

    def write(self, tables: Sequence[tuple[TableDeclaration, str]], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        ((declaration, sql),) = tables
        last, now = self.position.record, self.record
        why_full = "a full refresh was asked for" if self.full_refresh else "" if last else "the table is new"
        shown = {**more, **pass_metadata(now.inputs, last, why_full, None), "strategy": "append"}
        if last and last.query != now.query and not self.full_refresh:
            shown["went on although"] = _CHANGED_QUERY
            dg.get_dagster_logger().warning(f"{declaration.table_name} went on although {_CHANGED_QUERY}.")
        began, created = time.monotonic(), self.spark.ensure_table(declaration)
        rows = self.spark.sql(sql, rows=self.frame)
        before = self.spark.write_result(declaration, None)
        if not self.full_refresh:
            self._check_new(declaration, sql)
        if rows.isEmpty() and not self.full_refresh and not self.far_behind():
            wrote = before
        else:
            statement = insert_sql(declaration, self.spark.full_name(declaration), "{rows}", overwrite=self.full_refresh)
            purpose = {"purpose": FULL_REFRESH} if self.full_refresh else {}
            wrote = self.spark.merge_following(declaration, statement, rows, now.to_json(), self.position.version, **purpose)
        deleted = before.rows if self.full_refresh else 0
        yield materialize_by(self.spark, declaration, created, began, wrote, rows, deleted, **shown)

    def _check_new(self, declaration: TableDeclaration, sql: str) -> None:
        """Check that the table has no row with the keys of a new one."""
        if not self.keys:
            return
        listed = ", ".join(f"n.{identifier(key)}" for key in self.keys)
        found = self.records(
            f"SELECT {listed} FROM ({sql}) AS n LEFT SEMI JOIN {self.spark.sql_name(declaration)} AS t "
            f"ON {same_keys(self.keys, 'n', 't')} LIMIT 3"
        )
        if found:
            shown = keys_shown(found, self.keys, declaration.personal)
            raise QueryMismatch(
                f"{declaration.table_name}: rows with the keys of new ones are in the table already: {shown}. Nothing was "
                "written: use the strategy changes, whose rows change, or declare no keys."
            )


def _not_continued(declaration: TableDeclaration, reason: str) -> HistoryNotContinued:
    return HistoryNotContinued(
        f"{declaration.table_name} cannot go on from its last commit: {reason} Nothing was written. A materialization with "
        "full_refresh: true replaces its rows by those that its query gives now; where rows of an input change, use the "
        "strategy changes."
    )
