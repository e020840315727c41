"""A table of the strategy `incremental` over one input, for tests of what happens to that."""

import re
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.errors import TableMissing
from tests.components.begun_tables import begin, planned
from tests.components.incremental_tables import declared_query
from tests.engines.lakehouse import Lakehouse

_PLAIN = re.compile(r"SELECT k, (v|(sum|max)\(v\)( \+ 0)? AS \w+) FROM \S+( GROUP BY k)?")


class OneInput:
    """An input with rows of strings, and tables that are made of it."""

    def __init__(self, lake: Lakehouse, *, feed: bool) -> None:
        self.lake, self.schema = lake, f"s_{uuid4().hex[:10]}"
        lake.spark.catalog.ensure_schemas((self.schema,))
        self.create(feed=feed)

    def create(self, *, feed: bool) -> None:
        properties = f"'delta.columnMapping.mode' = 'none', 'delta.enableChangeDataFeed' = '{str(feed).lower()}'"
        self.quick(f"CREATE TABLE a (k STRING, v INT) USING DELTA TBLPROPERTIES ({properties})")
        self.quick("INSERT INTO a VALUES ('{rows}', 1), ('it\\'s', 2), ('{', 3), (NULL, 4)")

    def run(self, statement: str) -> None:
        """Run a statement by Spark, whose way to write is what is read."""
        self.lake.run(self._named(statement))

    def quick(self, statement: str) -> None:
        """Run a statement, however it is written."""
        self.lake.quick(self._named(statement))

    def _named(self, statement: str) -> str:
        return re.sub(r"\b(TABLE|INTO|FROM|UPDATE) (?!SET\b)(\w+)", rf"\1 {self.schema}.\2", statement)

    def table(self, select: str) -> ValidatedQuery:
        return declared_query(self.schema, "t", f"{select} FROM {self.schema}.a GROUP BY k", ["k"])

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
        (result,) = [each for each in materialize_changes(self.lake.spark, table) if isinstance(each, dg.MaterializeResult)]
        stored = self.lake.quick(f"SELECT * FROM {self.schema}.t")
        assert sorted(str(tuple(row.values())) for row in stored) == self.rows(table.query.text)
        return (result.metadata or {}).get("computed in full because", ""), self.version() - before

    def version(self) -> int:
        try:
            return self.lake.catalog.version(f"ratify.{self.schema}.t")
        except TableMissing:
            return 0

    def rows(self, text: str) -> list[str]:
        """Return the rows of a query; of a plain one DuckDB computes the same as Spark."""
        by = self.lake.quick if _PLAIN.fullmatch(text) else self.lake.run
        return sorted(str(tuple(row.values())) for row in by(text))
