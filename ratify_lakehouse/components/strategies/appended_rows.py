"""Spark as the engine of a table to which rows are appended once (see `append_pass`)."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.query_engines import RowsToWrite, SparkQueries, SparkRows, ValidatedRows
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.append_pass import AppendPass, PassToAppend
from ratify_lakehouse.components.strategies.computed_rows import failing_stored
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.table_asset import materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_history import FULL_REFRESH
from ratify_lakehouse.engines.spark.interpreted_queries import FEW_ROWS, FEW_ROWS_SEARCHED
from ratify_lakehouse.engines.spark.merge_statements import insert_sql
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableName


class AppendedRows(AppendPass[QueryInputs], SparkQueries):
    """One pass over a table."""

    def __init__(
        self, spark: Spark, table: ValidatedQuery, driving: TableName, *, full_refresh: bool = False, planned: bool = False
    ) -> None:
        super().__init__(spark, table.query, table.declaration)
        self._inputs = QueryInputs(spark, table.query)
        self.begin(table, driving, full_refresh=full_refresh, planned=planned)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        appended = self.appended
        with self.few_rows(FEW_ROWS if appended.every else FEW_ROWS_SEARCHED):
            yield _NewRows(self._spark, self._spark.computed(self._spark.sql(text)), self._before, appended)


@dataclass(frozen=True)
class _NewRows(SparkRows):
    """The rows that a pass has computed."""

    appended: PassToAppend

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
        return failing_stored(self.spark, expectations, written)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        (given,) = tables
        declaration, sql = given.declaration, given.sql
        appended, refresh = self.appended, self.appended.full_refresh
        shown = appended.shown(declaration, more)
        began, created = time.monotonic(), self.spark.ensure_table(declaration)
        rows = self.spark.sql(sql, rows=self.frame)
        wrote = before = self.spark.write_result(declaration, None)
        appended.check_new(declaration, sql, self.spark.sql_name(declaration), self.records, SPARK)
        if refresh or given.number or appended.far_behind():
            statement = insert_sql(declaration, self.spark.full_name(declaration), "{rows}", overwrite=refresh)
            record, after = appended.record.to_json(), appended.position.version
            purpose = {"purpose": FULL_REFRESH} if refresh else {}
            wrote = self.spark.merge_following(declaration, statement, rows, record, after, **purpose)
        if refresh:
            wrote = replace(wrote, counted={"inserted": wrote.inserted, "deleted": before.rows})
        yield materialize_by(self.spark, declaration, created, began, wrote, rows, **shown)
