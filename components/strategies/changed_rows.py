"""Spark as the engine of a table that is computed only where its inputs have changed (strategy `changes`).

A pass reads its inputs at fixed versions. The last commit of the table says up to which versions of them it was computed
(`computed_inputs`). What has changed since gives the keys of the table's rows that may differ (`affected_keys`). The query
is computed for these keys alone, and what differs from the table is merged into it, in one commit that records the versions.
If the table is not known to be as its last record says, or its query does not allow it, all rows are computed.

Rows of these keys that go to quarantine are merged into it likewise, by a commit that follows. Whether the two tables agree
is seen from their records (`with_quarantine`).
"""

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg

from components.engine_failures import without_values
from components.landing_order import LANDING
from components.query_engines import SparkQueries, ValidatedRows
from components.sql_table import ValidatedQuery
from components.strategies.computed_rows import ComputedRows
from components.strategies.pass_plan import PassPlan
from components.strategies.pass_results import materialize_passes
from components.strategies.pass_scope import VERSIONS_READ_AGAIN, DaysAgain, Scope
from components.strategies.query_inputs import QueryInputs
from components.strategies.rows_of_keys import (
    AFFECTED,
    check_key_types,
)
from resources.declarations import TableDeclaration
from resources.delta.computed_inputs import (
    COMMITS_READ,
    ComputedInputs,
    FullRecompute,
    last_computed,
    with_quarantine,
)
from resources.errors import TableMissing
from resources.spark.interpreted_queries import FEW_ROWS, FEW_ROWS_SEARCHED
from resources.spark.key_ranges import KeyRanges
from resources.spark.spark_engine import Spark
from resources.spark.spark_errors import first_line
from resources.sql.affected_keys import KeysQuery, keys_queries
from resources.sql.query_parts import NotDerivable
from resources.sql.spark_sql import identifier
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def materialize_changes(
    spark: Spark, table: ValidatedQuery, again: DaysAgain | None = None
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Make a table equal to its query's rows, as `materialize` does, by computing those that may have changed.

    Args:
        spark: The session.
        table: The table.
        again: The rows of these days are computed as well.

    Raises:
        As materialize.
    """
    yield from materialize_passes(
        spark,
        table,
        lambda: ChangedRows(spark, table, again),
        lambda why: ChangedRows(spark, table, again, why),
        follows_inputs=True,
    )


class ChangedRows(SparkQueries):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery, again: DaysAgain | None = None, why_full: str = "") -> None:
        super().__init__(spark, table.query, *table.written)
        self._table = table
        self._inputs = QueryInputs(spark, table.query)
        self._scope: Scope | None = None
        self._again, self._why_full = again, why_full

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. The input is read at a version, so that the query and the record agree."""
        return self._inputs.relation(name, columns)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        with self.few_rows(FEW_ROWS_SEARCHED):
            self._scope = self.scope(self.record(declaration), declaration, text)
        return self._scope.rows_of(text)

    def record(self, declaration: TableDeclaration) -> ComputedInputs:
        """Return the record of a pass that computes whatever the inputs have changed."""
        declared = [self._table.expectations.code(self._table.query.text), declaration.column_types, declaration.keys]
        declared += [self._inputs.types_named, *self.declared_beside()]
        digest = hashlib.sha256(repr(tuple(declared)).encode()).hexdigest()
        # The version before the inputs': a pass that has read newer ones may have committed since.
        after = self._before[self._spark.full_name(declaration)]
        return ComputedInputs(digest, after, self._inputs.versions, uuid4().hex)

    def declared_beside(self) -> list[Any]:
        """Return what the rows depend on beside the query, the columns and the keys."""
        return []

    def scope(self, record: ComputedInputs, declaration: TableDeclaration, text: str) -> Scope:
        """Return what is to be computed.

        Args:
            record: See `record`.
            declaration: The table.
            text: Its query.
        """
        last: ComputedInputs | None = None
        try:
            last = self._last(record, declaration)
            known = self._with_quarantine(last, declaration)
            keys, changed = self._affected(known, declaration, text)
        except (FullRecompute, NotDerivable) as reason:
            dg.get_dagster_logger().info(f"All rows of {declaration.table_name} are computed, because {reason}.")
            recorded = isinstance(reason, FullRecompute) and not reason.lasting
            return Scope(declaration.keys, str(reason), record, last, recorded)
        return Scope(
            declaration.keys,
            "",
            record,
            last,
            recorded=known.moved(record.inputs) >= VERSIONS_READ_AGAIN,
            keys=keys.number,
            changed=changed,
            within=keys.within,
            shown={"keys affected": keys.number},
        )

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """Return what the pass would do, from what the catalog and the logs say: nothing is computed."""
        record, last = self.record(declaration), None
        try:
            last = self._with_quarantine(self._last(record, declaration), declaration)
            self._keys_queries(declaration)
            self._inputs.check(last)
        except (FullRecompute, NotDerivable) as reason:
            return PassPlan.of(record, last, str(reason))
        return PassPlan.of(record, last)

    def _keys_queries(self, declaration: TableDeclaration) -> Sequence[KeysQuery]:
        if self._table.quarantine:
            check_key_types(declaration)
        return keys_queries(self._table.query, declaration.keys, self._inputs.columns, unknown=[LANDING])

    def _last(self, now: ComputedInputs, declaration: TableDeclaration) -> ComputedInputs:
        """The record that the table has.

        Raises:
            FullRecompute: the table is not known to be as it says.
        """
        if now.after < 0:
            raise FullRecompute("the table is new")
        last = last_computed(self._spark.recent_commits(self._spark.full_name(declaration), COMMITS_READ))
        if last.query != now.query:
            raise FullRecompute("its query or its declaration is another")
        return last

    def _with_quarantine(self, last: ComputedInputs, declaration: TableDeclaration) -> ComputedInputs:
        if not self._table.quarantine:
            return last
        full_name = self._spark.full_name(self._table.quarantine)
        try:
            table_id, version = self.catalog.table(full_name).table_id or "", self.catalog.version(full_name)
        except TableMissing:
            raise FullRecompute("its quarantine is missing") from None
        newer = version - last.quarantine.after if last.quarantine else 0
        commits = self._spark.recent_commits(full_name, newer) if newer > 0 else ()
        return with_quarantine(last, table_id, version, commits)

    def _affected(
        self, last: ComputedInputs, declaration: TableDeclaration, text: str
    ) -> tuple[KeyRanges, Mapping[str, int]]:
        """Find the affected keys, as a temporary view, and count the changed rows of each input."""
        if self._why_full:
            raise FullRecompute(self._why_full)
        queries = self._keys_queries(declaration)
        changed = self._inputs.create_views(last)
        keys = ", ".join(map(identifier, declaration.keys))
        texts = [f"SELECT {keys} FROM ({each.text})" for each in queries if each.input in changed]
        texts += self._asked_for(declaration, text)
        if not texts:
            return KeyRanges(0, ()), {}
        # Its types are those of the table also where nothing has changed.
        texts.append(f"SELECT {keys} FROM {self._spark.sql_name(declaration)} WHERE false")
        union = "\nUNION ALL\n".join(f"({each})" for each in texts)
        every = self._inputs.with_every(changed)
        affected = self._keys_of(f"{every}\nSELECT DISTINCT {keys} FROM (\n{union}\n)")
        affected.createOrReplaceTempView(AFFECTED)
        types = {key: declaration.column_types[key] for key in declaration.keys}
        counts = [f"(SELECT count(*) FROM {view}) AS {view}" for view in changed.values()]
        (found,) = self._spark.rows(self._spark.query(KeyRanges.query(types, AFFECTED, counts)))
        ranges = KeyRanges.of(found, types)
        if self._table.quarantine and not ranges.readable:
            raise FullRecompute("its quarantine has rows as JSON, in which a changed key, which is no UTF-8, is not exact")
        return ranges, {self._inputs.full_name(name): found[view] for name, view in changed.items()}

    def _keys_of(self, text: str) -> "DataFrame":
        """The affected keys.

        Raises:
            FullRecompute: they cannot be computed.
        """
        from pyspark.errors import PySparkException

        try:
            return self._rows_of(text)
        except PySparkException as error:
            raise not_computed("keys", error, hides=self.hides) from error

    def _asked_for(self, declaration: TableDeclaration, text: str) -> list[str]:
        """The queries for the keys of the rows of the days that are to be computed again, whatever has changed."""
        if self._again is None:
            return []
        keys = ", ".join(map(identifier, declaration.keys))
        of_days = f"CAST({identifier(self._again.column)} AS DATE) BETWEEN {self._again.between}"
        stored = self._spark.sql_name(declaration)
        return [f"SELECT {keys} FROM {rows} WHERE {of_days}" for rows in (f"(\n{text}\n)", stored)]

    @property
    def hides(self) -> bool:
        """Return whether the table has personal data, or is computed from some."""
        return self._table.personal.concerned(self._table.declaration.table_name)

    def _rows_of(self, text: str) -> "DataFrame":
        from pyspark.errors import PySparkException

        try:
            return self._spark.computed(self._spark.query(text))
        except PySparkException:
            # The versions that it reads are those of the tables that were there when the pass began.
            self._inputs.check_replaced()
            raise

    def _rows_in_scope(self, text: str, scope: Scope) -> "DataFrame":
        from pyspark.errors import PySparkException

        try:
            return self._rows_of(text)
        except PySparkException as error:
            if scope.why_full:
                raise
            raise not_computed("rows", error, hides=self.hides) from error

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._scope is None:
            raise ValueError("it is not known what to compute")
        with self.few_rows(FEW_ROWS if self._scope.why_full else FEW_ROWS_SEARCHED):
            rows = None if self._scope.nothing else self._rows_in_scope(text, self._scope)
            yield ComputedRows(self._spark, rows, self._scope, self._inputs, self._before)


def not_computed(what: str, error: Exception, *, hides: bool) -> FullRecompute:
    """Return why all rows are computed where those of the keys that changes affect cannot be.

    To find them, Spark may evaluate expressions for rows that the query itself leaves out before. `hides`: whether values
    that the error quotes may be personal; runs show the reason.
    """
    text = first_line(str(error))
    return FullRecompute(f"the {what} that changes affect cannot be computed: {without_values(text) if hides else text}")
