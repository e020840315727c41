"""DuckDB as the engine of a table that is computed only where its inputs have changed (see `changed_rows`).

The inputs are read as they are, and a pass begins again if one has got a new version before all was read: so the rows are
those of the versions that the record names. What has changed in them comes from their logs and data files.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.query_engines import VALIDATED, DuckDBQueries, ValidatedRows
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.strategies.incremental_pass import IncrementalPass, not_computed
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain, Scope
from ratify_lakehouse.components.strategies.rows_of_keys import AFFECTED
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.key_ranges import LISTED, KeyRanges, key_condition, ordered_keys
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from ratify_lakehouse.sql.table_query import TableName, TableQuery


class ChangedRowsByDuckDB(DuckDBQueries, IncrementalPass[AttachedInputs]):
    """One pass over a table."""

    def __init__(
        self,
        session: DuckDBSession,
        spark: Spark,
        table: ValidatedQuery,
        again: DaysAgain | None = None,
        why_full: str = "",
    ) -> None:
        super().__init__(session, spark, *table.written)
        self._inputs = AttachedInputs(session, table.query)
        self.begin(table, again, why_full)

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. Its version is noted before the catalog is attached."""
        return self._inputs.relation(name, columns)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        self._scope = self.scope(self.record(declaration), declaration, text)
        return self._scope.rows_of(text, self.dialect)

    def records(self, text: str, what: str = "") -> Sequence[Mapping[str, Any]]:
        """See `IncrementalPass`."""
        import duckdb

        try:
            return self._session.records(text)
        except duckdb.Error as error:
            if not what:
                raise
            raise not_computed(what, error, hides=self.hides) from error

    def stored(self, declaration: TableDeclaration) -> str:
        """See `IncrementalPass`."""
        return attached(declaration.table_name)

    def keys_found(
        self, text: str, declaration: TableDeclaration, changed: Mapping[TableName, str]
    ) -> tuple[KeyRanges, Mapping[str, int]]:
        """See `IncrementalPass`."""
        import duckdb

        try:
            self._session.rows(f"CREATE OR REPLACE TEMP TABLE {AFFECTED} AS {text}")
        except duckdb.Error as error:
            raise not_computed("keys", error, hides=self.hides) from error
        counts = {
            self._inputs.full_name(name): self._session.rows(f"SELECT count(*) FROM {view}")[0][0]
            for name, view in changed.items()
        }
        return self._ranges({key: declaration.column_types[key] for key in declaration.keys}), counts

    def _ranges(self, types: Mapping[str, str]) -> KeyRanges:
        """The number of the affected keys, and conditions by which DuckDB leaves out groups of rows of files."""
        ((number,),) = self._session.rows(f"SELECT count(*) FROM {AFFECTED}")
        ordered = ordered_keys(types) if number else ()
        return KeyRanges(number, tuple(self._range(identifier(key), sql_type(types[key]).sql) for key in ordered))

    def _range(self, key: str, type_: str) -> Callable[[str], str]:
        some = f"SELECT DISTINCT {key} AS v FROM {AFFECTED} LIMIT {LISTED + 2}"
        found = [text for (text,) in self._session.rows(f"SELECT CAST(v AS VARCHAR) FROM ({some})")]
        given, nulls = sorted(text for text in found if text is not None), None in found
        if many := len(given) > LISTED:
            bounds = (
                f"SELECT CAST(min({key}) AS VARCHAR), CAST(max({key}) AS VARCHAR), count(*) > count({key}) FROM {AFFECTED}"
            )
            ((*given, nulls),) = self._session.rows(bounds)
        written = [f"CAST({literal(text)} AS {type_})" for text in given]
        if many:
            return key_condition(key, f"BETWEEN {' AND '.join(written)}", nulls=nulls)
        return key_condition(key, f"IN ({', '.join(written)})" if written else "", nulls=nulls)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        import duckdb

        if self._scope is None:
            raise ValueError("it is unknown what to compute")
        try:
            with self._inputs.read_unmoved():
                if not self._scope.nothing:
                    self._session.rows(f"CREATE OR REPLACE TEMP TABLE {VALIDATED} AS {text}")
        except duckdb.Error as error:
            if self._scope.why_full:
                raise
            raise not_computed("rows", error, hides=self.hides) from error
        yield self.computed(self._scope)
        self._session.rows(f"DROP TABLE IF EXISTS {VALIDATED}")

    def computed(self, scope: Scope) -> RowsByDuckDB:
        """Return the rows that the pass has computed."""
        return RowsByDuckDB(self._session, self._spark, self._before, scope, self._inputs)
