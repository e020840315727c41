"""Spark as the engine of a table that is computed only where its inputs have changed (strategy `changes`).

A pass reads its inputs at fixed versions. The last commit of the table says up to which versions of them it was computed
(`computed_inputs`). What has changed since gives the keys of the table's rows that may differ (`affected_keys`). The query
is computed for these keys alone, and what differs from the table is merged into it, in one commit that records the versions.
If the table is not known to be as its last record says, or its query does not allow it, all rows are computed.

Rows of these keys that go to quarantine are merged into it likewise, by a commit that follows. Whether the two tables agree
is seen from their records (`with_quarantine`).
"""

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from components.expectations.expectation_rules import Expectations
from components.landing_order import LANDING
from components.query_engines import SparkQueries, ValidatedRows
from components.sql_table import ValidatedQuery, materialize
from components.strategies.pass_metadata import pass_metadata
from components.strategies.pass_plan import PassPlan
from components.strategies.query_inputs import QueryInputs
from components.strategies.rows_of_keys import (
    AFFECTED,
    check_key_types,
    differing,
    no_changes,
    quarantined_of_keys,
    same_keys,
    stored_failures,
    stored_of_keys,
)
from components.table_asset import materialize_by
from resources.declarations import TableDeclaration
from resources.delta.computed_inputs import (
    COMMITS_READ,
    ComputedInputs,
    FullRecompute,
    QuarantineVersion,
    last_computed,
    quarantine_record,
    with_quarantine,
)
from resources.errors import CommitConflict, ExpectationFailed, TableMissing
from resources.spark.key_ranges import KeyRanges
from resources.spark.merge_statements import fill_sql
from resources.spark.spark_engine import Spark, WriteResult
from resources.sql.affected_keys import KeysQuery, keys_queries
from resources.sql.query_parts import NotDerivable
from resources.sql.spark_sql import at_version, identifier
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_OF_A_FILE = 250_000
"""Of the first rows of a table."""

_VERSIONS_READ_AGAIN = 20
"""So many versions of the inputs are read in each pass until one changes a row of the table. Then a commit that changes none
says up to which versions it was computed."""


def materialize_changes(spark: Spark, table: ValidatedQuery) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Make a table equal to its query's rows, as `materialize` does, by computing those that may have changed.

    Raises:
        As materialize.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(CommitConflict),
        stop=stop_after_attempt(spark.attempts),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        reraise=True,
    )
    results = list[dg.MaterializeResult[Any] | dg.AssetCheckResult]()

    def once() -> None:
        results.clear()
        # One by one: where an expectation fails, its results come before the error.
        for result in materialize(ChangedRows(spark, table), table):
            results.append(result)

    try:
        retrying(once)
    except ExpectationFailed:
        yield from results
        raise
    yield from results


@dataclass(frozen=True)
class _Scope:
    """What a pass computes.

    Attributes:
        after: The table's version before it; -1 if it does not exist.
        why_full: Why all rows are computed; empty where only those of affected keys are.
        record: For the commit.
        last: The record that the table has; None where it is not known to be as one says.
        recorded: Whether the pass commits its record also if no row differs. Otherwise the next one would have to compute
            all rows again, or to read ever more changes.
        keys: How many keys are affected.
        changed: By input, how many of its rows changed; None where that is not counted.
        within: Returns a condition that holds for the affected keys of a relation (see `KeyRanges`).
    """

    after: int
    why_full: str
    record: ComputedInputs
    last: ComputedInputs | None = None
    recorded: bool = False
    keys: int = 0
    changed: Mapping[str, int] | None = None
    within: Callable[[str], str] = lambda _: "true"

    @property
    def nothing(self) -> bool:
        """Whether no row of the table can differ."""
        return not self.why_full and not self.keys


class ChangedRows(SparkQueries):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery) -> None:
        super().__init__(spark)
        self._table = table
        self._inputs = QueryInputs(spark, table.query)
        self._scope: _Scope | None = None

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. The input is read at a version, so that the query and the record agree."""
        return self._inputs.relation(name, columns)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        record = self._record(declaration)
        after, last = record.after, None
        try:
            last = self._last(record, declaration)
            known = self._with_quarantine(last, declaration)
            keys, changed = self._affected(known, declaration)
        except (FullRecompute, NotDerivable) as reason:
            dg.get_dagster_logger().info(f"All rows of {declaration.table_name} are computed, because {reason}.")
            recorded = isinstance(reason, FullRecompute) and not reason.lasting
            self._scope = _Scope(after, str(reason), record, last, recorded)
            return text
        recorded = known.moved(record.inputs) >= _VERSIONS_READ_AGAIN
        self._scope = _Scope(after, "", record, last, recorded, keys.number, changed, keys.within)
        if self._scope.nothing:
            # Of which `validated` computes no row.
            return text
        on = same_keys(declaration.keys, "q", "a")
        return f"SELECT q.* FROM (\n{text}\n) AS q LEFT SEMI JOIN {AFFECTED} AS a ON {on} WHERE {keys.within('q')}"

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """Return what the pass would do, from what the catalog and the logs say: nothing is computed."""
        record, last = self._record(declaration), None
        try:
            last = self._with_quarantine(self._last(record, declaration), declaration)
            self._keys_queries(declaration)
            self._inputs.check(last)
        except (FullRecompute, NotDerivable) as reason:
            return PassPlan.of(record, last, str(reason))
        return PassPlan.of(record, last)

    def _record(self, declaration: TableDeclaration) -> ComputedInputs:
        declared = self._table.expectations.validated(self._table.query.text), declaration.column_types, declaration.keys
        try:
            after = self.catalog.version(self._spark.full_name(declaration))
        except TableMissing:
            after = -1
        digest = hashlib.sha256(repr(declared).encode()).hexdigest()
        return ComputedInputs(digest, after, self._inputs.versions, uuid4().hex)

    def _keys_queries(self, declaration: TableDeclaration) -> Sequence[KeysQuery]:
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
        check_key_types(declaration)
        full_name = self._spark.full_name(self._table.quarantine)
        try:
            table_id, version = self.catalog.table(full_name).table_id or "", self.catalog.version(full_name)
        except TableMissing:
            raise FullRecompute("its quarantine is missing") from None
        newer = version - last.quarantine.after if last.quarantine else 0
        commits = self._spark.recent_commits(full_name, newer) if newer > 0 else ()
        return with_quarantine(last, table_id, version, commits)

    def _affected(self, last: ComputedInputs, declaration: TableDeclaration) -> tuple[KeyRanges, Mapping[str, int]]:
        """Find the affected keys, as a temporary view, and count the changed rows of each input."""
        queries = self._keys_queries(declaration)
        changed = self._inputs.create_views(last)
        if not changed:
            return KeyRanges(0, ()), {}
        keys = ", ".join(map(identifier, declaration.keys))
        # Its types are those of the table also where nothing has changed.
        texts = [f"SELECT {keys} FROM {self._spark.sql_name(declaration)} WHERE false"]
        texts += [each.text for each in queries if each.input in changed]
        union = "\nUNION ALL\n".join(f"({text})" for text in texts)
        every = self._inputs.with_every(changed)
        affected = self._spark.computed(self._spark.query(f"{every}\nSELECT DISTINCT {keys} FROM (\n{union}\n)"))
        affected.createOrReplaceTempView(AFFECTED)
        types = {key: declaration.column_types[key] for key in declaration.keys}
        counts = [f"(SELECT count(*) FROM {view}) AS {view}" for view in changed.values()]
        (found,) = self._spark.rows(self._spark.query(KeyRanges.query(types, AFFECTED, counts)))
        return KeyRanges.of(found, types), {self._inputs.full_name(name): found[view] for name, view in changed.items()}

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._scope is None:
            raise ValueError("it is not known what to compute")
        rows = None if self._scope.nothing else self._spark.computed(self._spark.query(text))
        yield _ChangedRows(self._spark, rows, self._scope)


@dataclass(frozen=True)
class _Quarantined:
    """What is to be merged into a quarantine; None where nothing differs."""

    declaration: TableDeclaration
    created: bool
    version: QuarantineVersion
    changes: "DataFrame | None"
    sql: str


@dataclass(frozen=True)
class _ChangedRows:
    """The rows that a pass has computed; None where none had to be."""

    spark: Spark
    frame: "DataFrame | None"
    scope: _Scope

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        rows = self._rows_of(sql)
        return [] if rows is None else self.spark.rows(rows)

    def write(self, tables: Sequence[tuple[TableDeclaration, str]], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        scope, last = self.scope, self.scope.last
        shown = {**more, **pass_metadata(scope.record, last, scope.why_full, scope.keys, scope.changed)}
        (declaration, sql), *others = tables
        created = self.spark.ensure_table(declaration)
        quarantined = self._quarantined(declaration, *others[0]) if others else None
        record = replace(self.scope.record, quarantine=quarantined and quarantined.version)
        began = time.monotonic()
        wrote = self._merge(declaration, sql, record)
        yield materialize_by(self.spark, declaration, created, began, wrote, self._rows_of(sql), **shown)
        if quarantined:
            began = time.monotonic()
            # The record that the table has now.
            of = record if wrote.commit or last is None else last
            wrote = self._merge_quarantined(quarantined, quarantine_record(of, record.inputs))
            rows = self._rows_of(quarantined.sql)
            yield materialize_by(self.spark, quarantined.declaration, quarantined.created, began, wrote, rows, **shown)

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        if self.scope.why_full:
            return None
        texts = stored_failures(expectations, [(each, self.spark.sql_name(each)) for each in written])
        found = self.spark.rows(self.spark.query(" UNION ALL ".join(texts))) if texts else []
        return {name: failing for row in found for name, failing in row["failing"].items()}

    def _rows_of(self, sql: str) -> "DataFrame | None":
        return None if self.frame is None else self.spark.query(sql, rows=self.frame)

    def _merge(self, declaration: TableDeclaration, sql: str, record: ComputedInputs) -> WriteResult:
        wrote = self._merge_rows(declaration, sql, record)
        if wrote.commit or not self.scope.recorded:
            return wrote
        nothing = self.spark.sql(no_changes(declaration, self.spark.sql_name(declaration)))
        return self.spark.merge_changes(declaration, nothing, record.to_json(), self.scope.after, "false")

    def _merge_rows(self, declaration: TableDeclaration, sql: str, record: ComputedInputs) -> WriteResult:
        rows = self._rows_of(sql)
        if rows is None:
            return self.spark.write_result(declaration, None)
        if self.scope.why_full:
            stored = self.spark.write_result(declaration, None)
            if stored.rows or rows.isEmpty():
                return self.spark.merge_to_match(declaration, lambda: rows, record.to_json())
            # In files that each have a range of keys: later passes read those that may have the affected ones.
            files = -(-rows.count() // _ROWS_OF_A_FILE)
            ordered = rows.repartitionByRange(files, *declaration.keys).sortWithinPartitions(*declaration.keys)
            fill = fill_sql(declaration, self.spark.full_name(declaration), "{rows}")
            return self.spark.merge_following(declaration, fill, ordered, record.to_json(), stored.version)
        name, after = self.spark.sql_name(declaration), self.scope.after
        differing = self._differing(declaration, rows, stored_of_keys(declaration, name, after, self.scope.within))
        if differing is None:
            return self.spark.write_result(declaration, None)
        return self.spark.merge_changes(declaration, differing, record.to_json(), after, self.scope.within("target"))

    def _quarantined(self, table: TableDeclaration, declaration: TableDeclaration, sql: str) -> _Quarantined:
        created = self.spark.ensure_table(declaration)
        name, full_name = self.spark.sql_name(declaration), self.spark.full_name(declaration)
        after, table_id = self.spark.catalog.version(full_name), self.spark.catalog.table(full_name).table_id or ""
        every = at_version(name, after)
        stored = f"SELECT * FROM {every}" if self.scope.why_full else quarantined_of_keys(table, every)
        rows = self._rows_of(sql)
        changes = None if rows is None else self._differing(declaration, rows, stored)
        version = QuarantineVersion(table_id, after, follows=changes is not None)
        return _Quarantined(declaration, created, version, changes, sql)

    def _merge_quarantined(self, found: _Quarantined, record: str) -> WriteResult:
        if found.changes is None:
            return self.spark.write_result(found.declaration, None)
        return self.spark.merge_changes(found.declaration, found.changes, record, found.version.after)

    def _differing(self, declaration: TableDeclaration, rows: "DataFrame", stored: str) -> "DataFrame | None":
        """What differs between computed rows and stored ones; None where nothing does."""
        changes = self.spark.computed(self.spark.query(differing(declaration, stored), accepted=rows))
        return None if changes.isEmpty() else changes
