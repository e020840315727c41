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
from components.strategies.pass_scope import DaysAgain, Scope
from components.strategies.query_inputs import QueryInputs
from components.strategies.rows_of_keys import (
    AFFECTED,
    check_key_types,
    differing,
    quarantined_of_keys,
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
from resources.sql.affected_keys import keys_queries
from resources.sql.query_parts import NotDerivable
from resources.sql.spark_sql import at_version, identifier
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_OF_A_FILE = 250_000
"""Of the first rows of a table."""


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
    yield from materialize_passes(spark, table, lambda: ChangedRows(spark, table, again))


def materialize_passes(
    spark: Spark, table: ValidatedQuery, begun: Callable[[], "ChangedRows"]
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Materialize a table by one pass; by another one if other writers committed first.

    Args:
        spark: The session.
        table: The table.
        begun: Returns a new pass.

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
        for result in materialize(begun(), table):
            results.append(result)

    try:
        retrying(once)
    except ExpectationFailed:
        yield from results
        raise
    yield from results


class ChangedRows(SparkQueries):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery, again: DaysAgain | None = None) -> None:
        super().__init__(spark)
        self._table = table
        self._inputs = QueryInputs(spark, table.query)
        self._scope: Scope | None = None
        self._again = again

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. The input is read at a version, so that the query and the record agree."""
        return self._inputs.relation(name, columns)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        self._scope = self.scope(self.record(declaration), declaration, text)
        return self._scope.rows_of(text)

    def record(self, declaration: TableDeclaration) -> ComputedInputs:
        """Return the record of a pass that computes whatever the inputs have changed."""
        declared = [self._table.expectations.validated(self._table.query.text), declaration.column_types, declaration.keys]
        declared += self.declared_beside()
        digest = hashlib.sha256(repr(tuple(declared)).encode()).hexdigest()
        full_name = self._spark.full_name(declaration)
        try:
            after = self.catalog.version(full_name)
        except TableMissing:
            after = -1
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
            keys = self._affected(self._with_quarantine(last, declaration), declaration, text)
        except (FullRecompute, NotDerivable) as reason:
            return Scope(declaration.keys, record.after, str(reason), record, last)
        shown = {"keys affected": keys.number}
        return Scope(declaration.keys, record.after, "", record, last, keys.number, keys.within, shown)

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

    def _affected(self, last: ComputedInputs, declaration: TableDeclaration, text: str) -> KeyRanges:
        """Find the affected keys, as a temporary view."""
        queries = keys_queries(self._table.query, declaration.keys, self._inputs.columns, unknown=[LANDING])
        changed = self._inputs.create_views(last)
        keys = ", ".join(map(identifier, declaration.keys))
        texts = [f"SELECT {keys} FROM ({each.text})" for each in queries if each.input in changed]
        texts += self._asked_for(declaration, text)
        if not texts:
            return KeyRanges(0, ())
        # Its types are those of the table also where nothing has changed.
        texts.append(f"SELECT {keys} FROM {self._spark.sql_name(declaration)} WHERE false")
        union = "\nUNION ALL\n".join(f"({each})" for each in texts)
        affected = self._spark.computed(self._spark.sql(f"SELECT DISTINCT {keys} FROM (\n{union}\n)"))
        affected.createOrReplaceTempView(AFFECTED)
        types = {key: declaration.column_types[key] for key in declaration.keys}
        return KeyRanges.of(self._spark.rows(self._spark.sql(KeyRanges.query(types, AFFECTED)))[0], types)

    def _asked_for(self, declaration: TableDeclaration, text: str) -> list[str]:
        """The queries for the keys of the rows of the days that are to be computed again, whatever has changed."""
        if self._again is None:
            return []
        keys = ", ".join(map(identifier, declaration.keys))
        of_days = f"CAST({identifier(self._again.column)} AS DATE) BETWEEN {self._again.between}"
        stored = self._spark.sql_name(declaration)
        return [f"SELECT {keys} FROM {rows} WHERE {of_days}" for rows in (f"(\n{text}\n)", stored)]

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._scope is None:
            raise ValueError("it is not known what to compute")
        yield _ChangedRows(self._spark, self._spark.computed(self._spark.sql(text)), self._scope, self._inputs)


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
    """The rows that a pass has computed."""

    spark: Spark
    frame: "DataFrame"
    scope: Scope
    inputs: QueryInputs

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.spark.rows(self.spark.sql(sql, rows=self.frame))

    def write(self, tables: Sequence[tuple[TableDeclaration, str]], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        reason, last = self.scope.why_full, self.scope.last
        read = {name: {"from": last and last.inputs.get(name), "to": to} for name, to in self.inputs.versions.items()}
        shown = {
            "strategy": "full" if reason else "changes",
            **({"computed in full because": reason} if reason else {}),
            **self.scope.shown,
            "inputs read": dg.MetadataValue.json(
                {name: {end: each and each.version for end, each in versions.items()} for name, versions in read.items()}
            ),
            **more,
        }
        (declaration, sql), *others = tables
        created = self.spark.ensure_table(declaration)
        quarantined = self._quarantined(declaration, *others[0]) if others else None
        record = replace(self.scope.record, quarantine=quarantined and quarantined.version)
        if record.after < 0 and not reason:
            if not created:
                raise CommitConflict(f"Another writer created {self.spark.full_name(declaration)} meanwhile.")
            record = replace(record, after=0)
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
        found = self.spark.rows(self.spark.sql(" UNION ALL ".join(texts))) if texts else []
        return {row["name"]: row["failing"] for row in found}

    def _rows_of(self, sql: str) -> "DataFrame":
        return self.spark.sql(sql, rows=self.frame)

    def _merge(self, declaration: TableDeclaration, sql: str, record: ComputedInputs) -> WriteResult:
        if self.scope.why_full:
            stored, rows = self.spark.write_result(declaration, None), self._rows_of(sql)
            if stored.rows or rows.isEmpty():
                return self.spark.merge_to_match(declaration, lambda: rows, record.to_json())
            # In files that each have a range of keys: later passes read those that may have the affected ones.
            files = -(-rows.count() // _ROWS_OF_A_FILE)
            ordered = rows.repartitionByRange(files, *declaration.keys).sortWithinPartitions(*declaration.keys)
            fill = fill_sql(declaration, self.spark.full_name(declaration), "{rows}")
            return self.spark.merge_following(declaration, fill, ordered, record.to_json(), stored.version)
        name, after = self.spark.sql_name(declaration), record.after
        differing = self._differing(declaration, sql, stored_of_keys(self.scope.by, name, after, self.scope.within))
        if differing is None:
            return self.spark.write_result(declaration, None)
        return self.spark.merge_changes(declaration, differing, record.to_json(), after, self.scope.within("target"))

    def _quarantined(self, table: TableDeclaration, declaration: TableDeclaration, sql: str) -> _Quarantined:
        created = self.spark.ensure_table(declaration)
        name, full_name = self.spark.sql_name(declaration), self.spark.full_name(declaration)
        after, table_id = self.spark.catalog.version(full_name), self.spark.catalog.table(full_name).table_id or ""
        every = at_version(name, after)
        stored = f"SELECT * FROM {every}" if self.scope.why_full else quarantined_of_keys(table, every)
        changes = self._differing(declaration, sql, stored)
        version = QuarantineVersion(table_id, after, follows=changes is not None)
        return _Quarantined(declaration, created, version, changes, sql)

    def _merge_quarantined(self, found: _Quarantined, record: str) -> WriteResult:
        if found.changes is None:
            return self.spark.write_result(found.declaration, None)
        return self.spark.merge_changes(found.declaration, found.changes, record, found.version.after)

    def _differing(self, declaration: TableDeclaration, sql: str, stored: str) -> "DataFrame | None":
        """What differs between computed rows and stored ones; None where nothing does."""
        if self.scope.nothing:
            return None
        text = differing(declaration, stored)
        changes = self.spark.computed(self.spark.sql(text, accepted=self._rows_of(sql)))
        return None if changes.isEmpty() else changes
