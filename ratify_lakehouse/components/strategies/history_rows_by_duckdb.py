"""DuckDB as the engine of a table with the history of the rows of its query (see `history_pass`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.query_engines import VALIDATED, RowsToWrite
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.changed_rows_by_duckdb import ChangedRowsByDuckDB
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.strategies.history_pass import (
    HistoryQuery,
    HistoryScope,
    check_dated,
    columns_read,
    time_of_inputs,
    versions_of_lists,
)
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.live_rows import LiveRows
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.list_dates import LIST_DATE
from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from ratify_lakehouse.sql.transpiled import by_duckdb

_GIVEN, _STORED = "ratify_given_rows", "ratify_stored_versions"
"""Views of the accepted rows, and of the versions that the table has."""
_DATES, _INPUT = "ratify_list_dates", "ratify_input_of_lists"
"""The temporary table of the dates of full lists, and what stands for their table in the query for them."""


class HistoryPassByDuckDB(HistoryScope[AttachedInputs], ChangedRowsByDuckDB):
    """One pass over a table."""

    _lists = ""

    def __init__(self, session: DuckDBSession, spark: Spark, table: HistoryQuery) -> None:
        super().__init__(session, spark, table)
        self._history = table.history

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`: of full lists those that count, by date."""
        found = super().relation(query, name, columns)
        if not (lists := self.lists_in(_INPUT, name, columns)):
            return found
        self._lists = found
        # Of the engine's own words for a table, the other dialect knows nothing.
        return f"({by_duckdb(lists).replace(_INPUT, found)})"

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: the dates of the lists are those of the versions that the rows have."""
        found = super().to_compute(text, declaration)
        if self._lists:
            self._session.rows(f"CREATE OR REPLACE TEMP TABLE {_DATES} AS SELECT DISTINCT {LIST_DATE} FROM {self._lists}")
        return found

    def computed(self, scope: Scope) -> "HistoryRowsByDuckDB":
        """See `ChangedRowsByDuckDB`."""
        return HistoryRowsByDuckDB(self._session, self._spark, self._before, scope, self._inputs, self._history)


@dataclass(frozen=True)
class HistoryRowsByDuckDB(RowsByDuckDB):
    """The rows that a pass has computed, of which the table gets the history."""

    history: RowHistory

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        """See `ValidatedRows`.

        Raises:
            QueryMismatch: it is not known since when a row is as it is; nothing was written.
        """
        declaration, sql = tables[0].declaration, tables[0].sql
        if not self.scope.nothing:
            check_dated(self.history, declaration, sql, self.records, DUCKDB)
            # Raises its error before the table is created.
            time_of_inputs(self.spark, self.history, declaration, self.inputs)
        yield from super().write(tables, **more)

    def wanted(self, declaration: TableDeclaration, sql: str, stored: LiveRows) -> str:
        """See `RowsByDuckDB`: the versions of the rows."""
        for view, text in ((_GIVEN, self.over(sql)), (_STORED, stored.select())):
            self.session.rows(f"CREATE OR REPLACE TEMP VIEW {view} AS {text}")
        if self.history.lists:
            return by_duckdb(versions_of_lists(declaration, self.history, _GIVEN, VALIDATED, _DATES))
        at = time_of_inputs(self.spark, self.history, declaration, self.inputs)
        return by_duckdb(wanted_history(self.history, columns_read(declaration), _STORED, _GIVEN, at, VALIDATED))
