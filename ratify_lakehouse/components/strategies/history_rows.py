"""Spark as the engine of a table with the history of the rows of its query (see `history_pass`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.query_engines import RowsToWrite
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.computed_rows import ComputedRows
from ratify_lakehouse.components.strategies.history_pass import (
    HistoryQuery,
    HistoryScope,
    check_dated,
    columns_read,
    time_of_inputs,
    versions_of_lists,
)
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CommitConflict
from ratify_lakehouse.ingest.list_dates import LIST_DATE
from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.spark_sql import at_version, identifier
from ratify_lakehouse.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HistoryPass(HistoryScope[QueryInputs], ChangedRows):
    """One pass over a table."""

    _dates = ""

    def __init__(self, spark: Spark, table: HistoryQuery) -> None:
        super().__init__(spark, table)
        self._history = table.history

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`: of full lists those that count, by date."""
        found = super().relation(query, name, columns)
        if not (lists := self.lists_in(found, name, columns)):
            return found
        self._dates = f"(SELECT DISTINCT {LIST_DATE} FROM {found})"
        return f"({lists})"

    def computed(self, rows: "DataFrame | None", scope: Scope) -> "HistoryRows":
        """See `ChangedRows`."""
        return HistoryRows(self._spark, rows, scope, self._inputs, self._before, self._history, self._dates)


@dataclass(frozen=True)
class HistoryRows(ComputedRows):
    """The rows that a pass has computed, of which the table gets the history.

    Attributes:
        history: What it follows.
        dates: A relation with the dates of full lists; empty if the rows are in none.
    """

    history: RowHistory
    dates: str

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        """See `ValidatedRows`.

        Raises:
            QueryMismatch: it is not known since when a row is as it is; nothing was written.
        """
        declaration, sql = tables[0].declaration, tables[0].sql
        check_dated(self.history, declaration, sql, self.records, SPARK)
        if self.frame is not None:
            # Raises its error before the table is created.
            time_of_inputs(self.spark, self.history, declaration, self.inputs)
        yield from super().write(tables, **more)

    def _previewed(self, accepted: RowsToWrite) -> None:
        return None

    def _merge(self, accepted: RowsToWrite, record: ComputedInputs) -> WriteResult:
        declaration, sql = accepted.declaration, accepted.sql
        if self.frame is None:
            return self.spark.write_result(declaration, None)
        after, keys = max(record.after, 0), ", ".join(map(identifier, self.history.keys))
        stored = at_version(self.spark.sql_name(declaration), after)
        # It may just have got columns of this query.
        self._check_version(declaration, after)
        if self.dates:
            there = f"(SELECT {keys}, {LIST_DATE} FROM {{rows}})"
            wanted = versions_of_lists(declaration, self.history, f"({sql})", there, self.dates)
        else:
            at = time_of_inputs(self.spark, self.history, declaration, self.inputs)
            there = f"(SELECT {keys} FROM {{rows}})"
            wanted = wanted_history(self.history, columns_read(declaration), stored, f"({sql})", at, there)
        rows = self.spark.query(wanted, rows=self.frame)
        differing = self._differing(declaration, rows, f"(SELECT * FROM {stored})")
        if differing is None:
            return self.spark.write_result(declaration, None)
        self._check_version(declaration, after)
        return self.spark.merge_changes(declaration, differing, replace(record, after=after).to_json(), after)

    def _check_version(self, declaration: TableDeclaration, version: int) -> None:
        full_name = self.spark.full_name(declaration)
        if self.spark.catalog.version(full_name) != version:
            raise CommitConflict(f"Another writer committed to {full_name} after its version {version}.")
