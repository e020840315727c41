"""Spark as the engine of a table that is computed only where its inputs have changed (strategy `incremental`).

A pass reads its inputs at fixed versions. The last commit of the table says up to which versions of them it was computed
(`computed_inputs`). What has changed since gives the keys of the table's rows that may differ (`affected_keys`). The query
is computed for these keys alone, and what differs from the table is merged into it, in one commit that records the versions.
If the table is not known to be as its last record says, or its query does not allow it, all rows are computed.

Rows of these keys that go to quarantine are merged into it likewise, by a commit that follows. Whether the two tables agree
is seen from their records (`with_quarantine`).
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.query_engines import SparkQueries, ValidatedRows
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.computed_rows import ComputedRows
from ratify_lakehouse.components.strategies.incremental_pass import IncrementalPass, not_computed
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain, Scope
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.rows_of_keys import AFFECTED
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import FullRecompute
from ratify_lakehouse.engines.spark.interpreted_queries import FEW_ROWS, FEW_ROWS_SEARCHED
from ratify_lakehouse.engines.spark.key_ranges import KeyRanges
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import QueryMismatch, TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangedRows(SparkQueries, IncrementalPass[QueryInputs]):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery, again: DaysAgain | None = None, why_full: str = "") -> None:
        super().__init__(spark, table.query, *table.written)
        self._inputs = QueryInputs(spark, table.query)
        self.begin(table, again, why_full)

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. The input is read at a version, so that the query and the record agree."""
        return self._inputs.relation(name, columns)

    def types(self, text: str) -> Mapping[str, str]:
        """See `SparkQueries`. They are those of the table, and Spark is not asked, if its record is of this very query."""
        types = self._types_recorded()
        return super().types(text) if types is None else types

    def _types_recorded(self) -> Mapping[str, str] | None:
        """The types of the query's columns, as `types`, but for those that the table does not have; None if not known."""
        table, names = self._table, self._table.query.columns
        unknown = dict.fromkeys((*table.intermediate, LANDING), "")
        try:
            found = self.catalog.table(self._spark.full_name(table.declaration)).columns or []
            stored = {column.name or "": column.type_text or "" for column in found} | unknown
            types = {name: stored[name] for name in names}
            self._last(self.record(table.stored(types, {})), table.declaration)
        except (TableMissing, KeyError, QueryMismatch, FullRecompute):
            return None
        return types

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        with self.few_rows(FEW_ROWS_SEARCHED):
            self._scope = self.scope(self.record(declaration), declaration, text)
        return self._scope.rows_of(text, self.dialect)

    def records(self, text: str, what: str = "") -> Sequence[Mapping[str, Any]]:
        """See `IncrementalPass`."""
        from pyspark.errors import PySparkException

        try:
            return self._spark.rows(self._spark.sql(text))
        except PySparkException as error:
            if not what:
                raise
            raise not_computed(what, error, hides=self.hides) from error

    def stored(self, declaration: TableDeclaration) -> str:
        """See `IncrementalPass`."""
        return self._spark.sql_name(declaration)

    def keys_found(
        self, text: str, declaration: TableDeclaration, changed: Mapping[TableName, str]
    ) -> tuple[KeyRanges, Mapping[str, int]]:
        """See `IncrementalPass`."""
        from pyspark.errors import PySparkException

        types = {key: declaration.column_types[key] for key in declaration.keys}
        counts = [f"(SELECT count(*) FROM {view}) AS {view}" for view in changed.values()]
        try:
            with self._same_inputs():
                self._spark.computed(self._spark.query(text), now=False).createOrReplaceTempView(AFFECTED)
                (found,) = self._spark.rows(self._spark.query(KeyRanges.query(types, AFFECTED, counts)))
        except PySparkException as error:
            raise not_computed("keys", error, hides=self.hides) from error
        return KeyRanges.of(found, types), {self._inputs.full_name(name): found[view] for name, view in changed.items()}

    @contextmanager
    def _same_inputs(self) -> Generator[None]:
        from pyspark.errors import PySparkException

        try:
            yield
        except PySparkException:
            # The versions that it reads are those of the tables that were there when the pass began.
            self._inputs.check_replaced()
            raise

    def _rows_in_scope(self, text: str, scope: Scope) -> "DataFrame":
        from pyspark.errors import PySparkException

        try:
            with self._same_inputs():
                return self._spark.computed(self._spark.query(text))
        except PySparkException as error:
            if scope.why_full:
                raise
            raise not_computed("rows", error, hides=self.hides) from error

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._scope is None:
            raise ValueError("it is unknown what to compute")
        with self.few_rows(FEW_ROWS if self._scope.why_full else FEW_ROWS_SEARCHED):
            rows = None if self._scope.nothing else self._rows_in_scope(text, self._scope)
            yield self.computed(rows, self._scope)

    def computed(self, rows: "DataFrame | None", scope: Scope) -> ComputedRows:
        """Return the rows that the pass has computed; None where none had to be."""
        return ComputedRows(self._spark, rows, scope, self._inputs, self._before)
