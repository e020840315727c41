"""DuckDB as the engine of a table to which rows are appended once (see `append_pass`)."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.query_engines import VALIDATED, DuckDBQueries, DuckDBRows, RowsToWrite, ValidatedRows
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.append_pass import AppendPass, PassToAppend
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.rows_of_keys import stored_failures_by_duckdb
from ratify_lakehouse.components.table_asset import materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_history import FULL_REFRESH
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.duckdb.row_merge import append, overwrite, table_rows, wrote
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_overtaken
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableName


class AppendedRowsByDuckDB(AppendPass[AttachedInputs], DuckDBQueries):
    """One pass over a table."""

    def __init__(
        self,
        session: DuckDBSession,
        spark: Spark,
        table: ValidatedQuery,
        driving: TableName,
        *,
        full_refresh: bool = False,
        planned: bool = False,
    ) -> None:
        super().__init__(session, spark, table.declaration)
        self._inputs = AttachedInputs(session, table.query)
        self.begin(table, driving, full_refresh=full_refresh, planned=planned)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        appended = self.appended
        with self._inputs.read_unmoved():
            self._session.rows(f"CREATE OR REPLACE TEMP TABLE {VALIDATED} AS {text}")
        yield _NewRowsByDuckDB(self._session, self._spark, self._before, appended)
        self._session.rows(f"DROP TABLE {VALIDATED}")


@dataclass(frozen=True)
class _NewRowsByDuckDB(DuckDBRows):
    """The rows that a pass has computed."""

    appended: PassToAppend

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
        return stored_failures_by_duckdb(self.session, expectations, written)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        (given,) = tables
        declaration = given.declaration
        shown = self.appended.shown(declaration, more)
        began, created = time.monotonic(), self.created(declaration)
        result = self._replaced(given) if self.appended.full_refresh else self._appended(given)
        yield materialize_by(self.spark, declaration, created, began, result, self.session, **shown)

    def _appended(self, given: RowsToWrite) -> WriteResult:
        declaration, appended = given.declaration, self.appended
        before = self.spark.write_result(declaration, None)
        refuse_overtaken(self.spark, self.spark.full_name(declaration), appended.position.version)
        # The rows are compared with that version, or with a later one, which the commit would not follow.
        self.session.attach()
        appended.check_new(declaration, given.sql, attached(declaration.table_name), self.records, DUCKDB)
        if not given.number and not appended.far_behind():
            return before
        rows, record = self.over(given.sql), appended.record.to_json()
        version = append(self.session, declaration, before.version, rows, given.number, record)
        return wrote(self.session, declaration, version, before.rows + given.number, {"inserted": given.number})

    def _replaced(self, given: RowsToWrite) -> WriteResult:
        declaration, appended = given.declaration, self.appended
        with table_rows(self.session, declaration) as stored:
            refuse_overtaken(self.spark, self.spark.full_name(declaration), appended.position.version)
            record, rows = appended.record.to_json(), self.over(given.sql)
            version = overwrite(self.session, declaration, stored, rows, given.number, record, FULL_REFRESH)
            counted = {"inserted": given.number, "deleted": stored.rows}
            return wrote(self.session, declaration, version, given.number, counted)
