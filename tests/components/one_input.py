"""A table of the strategy `incremental` over one input, for tests of what happens to that."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.changed_rows_by_duckdb import ChangedRowsByDuckDB
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.declarations import Column, Engine
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from tests.components.begun_tables import begin, planned
from tests.components.incremental_tables import declared_query
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse, folder_of

TOTALS, RECODED = (f"SELECT k, CAST(sum(v){more} AS BIGINT) AS total" for more in ("", " + 0"))
"""Select the sums of the values; the second is other code for the same rows."""

_PLAIN = re.compile(r"SELECT k, (v|(CAST\()?(sum|max)\(v\)( \+ 0)?( AS BIGINT\))? AS \w+) FROM \S+( GROUP BY k)?")


class OneInput:
    """An input with rows of strings, and tables that are made of it.

    Attributes:
        engine: What makes them.
        computed: The step of a pass that computes rows of all keys.
        overtaken: A step after the rows were computed, and before the commit.
    """

    engine = Engine.SPARK
    computed: tuple[Any, str] = (Spark, "computed")
    overtaken: tuple[Any, str] = (Spark, "ensure_table")

    def __init__(self, lake: Lakehouse | Sparkless, *, feed: bool) -> None:
        self.lake, self.schema = lake, f"s_{uuid4().hex[:10]}"
        lake.spark.catalog.ensure_schemas((self.schema,))
        self.create(feed=feed)

    def create(self, *, feed: bool) -> None:
        properties = f"'delta.columnMapping.mode' = 'none', 'delta.enableChangeDataFeed' = '{str(feed).lower()}'"
        self.quick(f"CREATE TABLE a (k STRING, v INT) USING DELTA TBLPROPERTIES ({properties})")
        self.quick("INSERT INTO a VALUES ('{rows}', 1), ('it\\'s', 2), ('{', 3), (NULL, 4)")

    def run(self, statement: str) -> None:
        """Run a statement by Spark, whose way to write is what is read."""
        assert isinstance(self.lake, Lakehouse)
        self.lake.run(self._named(statement))

    def add_column(self, name: str, type_: str) -> None:
        self.run(f"ALTER TABLE a ADD COLUMNS ({name} {type_})")

    def quick(self, statement: str) -> None:
        """Run a statement, however it is written."""
        self.lake.quick(self._named(statement))

    def _named(self, statement: str) -> str:
        return re.sub(r"\b(TABLE|INTO|FROM|UPDATE) (?!SET\b)(\w+)", rf"\1 {self.schema}.\2", statement)

    def table(self, select: str) -> ValidatedQuery:
        return self.declared(f"{select} FROM {self.schema}.a GROUP BY k", ["k"])

    def declared(self, text: str, keys: Sequence[str]) -> ValidatedQuery:
        return declared_query(self.schema, "t", text, keys, engine=self.engine)

    def begun(self, table: ValidatedQuery, rows: str = "", quarantined: str = "") -> None:
        """Make the table as its first pass leaves it: see `begin`."""
        begin(self.lake, table, rows, quarantined)
        assert self.goes_on(table) == "nothing"

    def goes_on(self, table: ValidatedQuery) -> str:
        """Return the plan of the next pass. One that computes nothing changes nothing."""
        plan = planned(self.lake, table)
        assert plan.why == ""
        return plan.computes

    def made(self, table: ValidatedQuery) -> tuple[str, int]:
        """One pass: why it computed all rows, and how many versions it made. The table equals its query then."""
        before = self.version()
        (result,) = [each for each in self.materialize(table) if isinstance(each, dg.MaterializeResult)]
        stored = self.lake.quick(f"SELECT * FROM {self.schema}.t")
        assert sorted(str(tuple(row.values())) for row in stored) == self.rows(table.query.text)
        return (result.metadata or {}).get("computed in full because", ""), self.version() - before

    def materialize(self, table: ValidatedQuery) -> Iterator[Any]:
        yield from materialize_changes(self.lake.spark, table)

    def folder(self) -> Path:
        """Return where the files of the input are."""
        return folder_of(self.lake.catalog, f"ratify.{self.schema}.a")

    def version(self) -> int:
        try:
            return self.lake.catalog.version(f"ratify.{self.schema}.t")
        except TableMissing:
            return 0

    def rows(self, text: str) -> list[str]:
        """Return the rows of a query; of a plain one DuckDB computes the same as Spark."""
        by = self.lake.quick if _PLAIN.fullmatch(text) else self.lake.run
        return sorted(str(tuple(row.values())) for row in by(text))


class OneInputOfDuckDB(OneInput):
    """As `OneInput`, without Spark."""

    engine = Engine.DUCKDB
    computed = (ChangedRowsByDuckDB, "validated")
    overtaken = (RowsByDuckDB, "_commit")

    def add_column(self, name: str, type_: str) -> None:
        table = declared_query(self.schema, "a", f"SELECT * FROM {self.schema}.a", ["k"]).declaration
        with self.lake.duckdb.session() as session:
            session.add_columns(table, [Column(name, type_)])

    def materialize(self, table: ValidatedQuery) -> Iterator[Any]:
        # An engine of its own: of two passes at once, each is a process.
        with closing(DuckDB(catalog=self.lake.catalog, threads=1)) as duckdb, duckdb.session() as session:
            yield from materialize_changes(self.lake.spark, table, session=session)
