"""Tables that DuckDB makes of random inputs, compared with their queries or their models, as those that Spark makes."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.query_engines import QueryEngine
from ratify_lakehouse.components.sql_table import split_rows
from ratify_lakehouse.components.strategies import appended_rows_by_duckdb
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.changed_rows_by_duckdb import ChangedRowsByDuckDB
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.strategies.history_rows_by_duckdb import HistoryPassByDuckDB
from ratify_lakehouse.components.strategies.table_passes import materialize_changes, materialize_history
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.duckdb_sql import identifier
from tests.components.appended_tables import AppendedTable
from tests.components.history_tables import HistoryTable
from tests.components.incremental_tables import IncrementalTable, IncrementalTables
from tests.components.random_queries import RandomQuery
from tests.components.transpiled_queries import in_duckdb


class TablesByDuckDB(IncrementalTables):
    """Tables of some queries, as `IncrementalTables`."""

    engine = Engine.DUCKDB
    steps = (
        *((AttachedInputs, "create_views"), (AttachedInputs, "check_unmoved")),
        *((Spark, "ensure_table"), (RowsByDuckDB, "_commit")),
    )

    @staticmethod
    def random_query(seed: str, depth: int) -> RandomQuery:
        """The first of random queries that DuckDB has."""
        found = (in_duckdb(IncrementalTables.random_query(f"{seed}/{number}", depth)) for number in count())
        return next(filter(None, found))

    def materialize(self, table: IncrementalTable) -> Iterator[Any]:
        with self._lake.duckdb.session() as session:
            yield from materialize_changes(self._lake.spark, self.declared(table), session=session)

    def compare(self, tables: Sequence[IncrementalTable]) -> None:
        with self._lake.duckdb.session() as session:
            session.attach()
            for table in tables:
                for stored, expected in self._pairs(table):
                    ((missing,),) = session.rows(f"SELECT count(*) FROM ({expected} EXCEPT ALL {stored})")
                    ((unexpected,),) = session.rows(f"SELECT count(*) FROM ({stored} EXCEPT ALL {expected})")
                    assert (missing, unexpected) == (0, 0), (stored, self.reproduced(table))

    def _pairs(self, table: IncrementalTable) -> Iterator[tuple[str, str]]:
        """The queries for the rows that each table has, and for those that it should have."""
        validated = self.declared(table)
        text = validated.query.resolved(lambda name: attached(f"{name.schema}.{name.table}"))
        rows = f"({validated.expectations.validated(text)})"
        queries = [
            query.replace("{rows}", rows) for query in split_rows(validated, dict.fromkeys(validated.query.columns, ""))
        ]
        for declaration, query in zip(validated.written, queries, strict=False):
            columns = validated.query.columns if declaration is validated.declaration else ("rule", "row", "rows")
            listed = ", ".join(map(identifier, columns))
            yield f"SELECT {listed} FROM {attached(declaration.table_name)}", f"SELECT {listed} FROM ({query})"


class HistoryByDuckDB(HistoryTable):
    """A table of the strategy `scd2`, as `HistoryTable`."""

    engine, sql = Engine.DUCKDB, DUCKDB
    commit = (RowsByDuckDB, "_commit")
    steps = ((AttachedInputs, "check_unmoved"), (Spark, "ensure_table"))
    passes = ChangedRowsByDuckDB
    fixed = False

    @contextmanager
    def one_pass(self) -> Iterator[QueryEngine]:
        with self.lake.duckdb.session() as session:
            yield HistoryPassByDuckDB(session, self.lake.spark, self.declared())

    def results(self) -> Iterator[Any]:
        with self.lake.duckdb.session() as session:
            yield from materialize_history(self.lake.spark, self.declared(), session)


class AppendedByDuckDB(AppendedTable):
    """A table of the strategy `append`, as `AppendedTable`."""

    engine, sql = Engine.DUCKDB, DUCKDB
    commit = (appended_rows_by_duckdb, "append")
    steps = ((AttachedInputs, "added"), (AttachedInputs, "check_unmoved"), (Spark, "ensure_table"))

    def session(self) -> AbstractContextManager[DuckDBSession | None]:
        return self.lake.duckdb.session()
