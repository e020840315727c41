"""Spark as the engine of a table that is computed only where its inputs have changed (strategy `changes`).

A pass reads its inputs at fixed versions. The last commit of the table says up to which versions of them it was computed
(`computed_inputs`). What has changed since gives the keys of the table's rows that may differ (`affected_keys`). The query
is computed for these keys alone, and what differs from the table is merged into it, in one commit that records the versions.
If the table is not known to be as its last record says, or its query does not allow it, all rows are computed.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from components.query_engines import SparkQueries, ValidatedRows
from components.sql_table import ValidatedQuery, materialize
from components.strategies.query_inputs import QueryInputs
from components.table_asset import materialize_by
from resources.declarations import TableDeclaration
from resources.delta.computed_inputs import COMMITS_READ, ComputedInputs, FullRecompute, last_computed
from resources.errors import CommitConflict, ExpectationFailed, TableMissing
from resources.spark.key_ranges import KeyRanges
from resources.spark.spark_engine import Spark, WriteResult
from resources.sql.affected_keys import keys_queries
from resources.sql.query_parts import NotDerivable
from resources.sql.spark_sql import identifier
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AFFECTED = "ratify_affected"


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
        keys: How many keys are affected.
        record: For the commit.
        within: Returns a condition that holds for the affected keys of a relation (see `KeyRanges`).
    """

    after: int
    why_full: str
    keys: int
    record: ComputedInputs
    within: Callable[[str], str] = lambda _: "true"


class ChangedRows(SparkQueries):
    """One pass over a table."""

    def __init__(self, spark: Spark, table: ValidatedQuery) -> None:
        super().__init__(spark)
        self._table = table
        self._inputs = QueryInputs(spark, table.query)
        self._scope: _Scope | None = None

    def relation(self, query: TableQuery, name: TableName, columns: Sequence[str]) -> str:
        """See `QueryEngine`. The input is read at a version, so that the query and the record agree."""
        landed = super().relation(query, name, columns) if self._inputs.has_order(columns) else ""
        self._inputs.found(name, columns, landed)
        return landed or self._inputs.at(name)

    def to_compute(self, text: str, declaration: TableDeclaration) -> str:
        """See `QueryEngine`: those of the keys that changes of the inputs affect, or all."""
        declared = self._table.expectations.validated(self._table.query.text), declaration.column_types, declaration.keys
        digest = hashlib.sha256(repr(declared).encode()).hexdigest()
        full_name = self._spark.full_name(declaration)
        try:
            after = self.catalog.version(full_name)
        except TableMissing:
            after = -1
        record = ComputedInputs(digest, after, self._inputs.versions)
        try:
            keys = self._affected(record, declaration)
        except (FullRecompute, NotDerivable) as reason:
            self._scope = _Scope(after, str(reason), 0, record)
            return text
        self._scope = _Scope(after, "", keys.number, record, keys.within)
        on = _same_keys(declaration.keys, "q", "a")
        return f"SELECT q.* FROM (\n{text}\n) AS q LEFT SEMI JOIN {_AFFECTED} AS a ON {on} WHERE {keys.within('q')}"

    def _affected(self, now: ComputedInputs, declaration: TableDeclaration) -> KeyRanges:
        """Find the affected keys, as a temporary view."""
        if now.after < 0:
            raise FullRecompute("the table is new")
        last = last_computed(self._spark.recent_commits(self._spark.full_name(declaration), COMMITS_READ))
        if last.query != now.query:
            raise FullRecompute("its query or its declaration is another")
        queries = keys_queries(self._table.query, declaration.keys, self._inputs.columns)
        changed = self._inputs.changed_since(last)
        for number, name in enumerate(self._table.query.inputs if changed else ()):
            if name in changed:
                self._inputs.create_changed_view(number, name, last)
            self._inputs.create_every_view(number, name, changed=name in changed)
        keys = ", ".join(map(identifier, declaration.keys))
        # Its types are those of the table also where nothing has changed.
        texts = [f"SELECT {keys} FROM {self._spark.sql_name(declaration)} WHERE false"]
        texts += [each.text for each in queries if each.input in changed]
        union = "\nUNION ALL\n".join(f"({text})" for text in texts)
        affected = self._spark.computed(self._spark.sql(f"SELECT DISTINCT {keys} FROM (\n{union}\n)"))
        affected.createOrReplaceTempView(_AFFECTED)
        types = {key: declaration.column_types[key] for key in declaration.keys}
        return KeyRanges.of(self._spark.rows(self._spark.sql(KeyRanges.query(types, _AFFECTED)))[0], types)

    @contextmanager
    def validated(self, text: str) -> Generator[ValidatedRows]:
        """See `QueryEngine`."""
        if self._scope is None:
            raise ValueError("it is not known what to compute")
        yield _ChangedRows(self._spark, self._spark.computed(self._spark.sql(text)), self._scope, self._inputs)


@dataclass(frozen=True)
class _ChangedRows:
    """The rows that a pass has computed."""

    spark: Spark
    frame: "DataFrame"
    scope: _Scope
    inputs: QueryInputs

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return self.spark.rows(self.spark.sql(sql, rows=self.frame))

    def write(self, declaration: TableDeclaration, sql: str, **more: Any) -> dg.MaterializeResult[Any]:
        reason = self.scope.why_full
        shown = {
            "strategy": "full" if reason else "changes",
            **({"computed in full because": reason} if reason else {"keys affected": self.scope.keys}),
            "inputs read": dg.MetadataValue.json({name: each.version for name, each in self.inputs.versions.items()}),
            **more,
        }
        merge, read = partial(self._merge, declaration, sql), partial(self._accepted, sql)
        return materialize_by(self.spark, declaration, merge, read, **shown)

    def _accepted(self, sql: str) -> "DataFrame":
        return self.spark.sql(sql, rows=self.frame)

    def _merge(self, declaration: TableDeclaration, sql: str) -> WriteResult:
        record = self.scope.record.to_json()
        if self.scope.why_full:
            return self.spark.merge_to_match(declaration, lambda: self._accepted(sql), record)
        differing = _differing(declaration, self.spark.sql_name(declaration), self.scope)
        changes = self.spark.computed(self.spark.sql(differing, accepted=self._accepted(sql)))
        if changes.isEmpty():
            return self.spark.write_result(declaration, None)
        return self.spark.merge_changes(declaration, changes, record, self.scope.after, self.scope.within("target"))


def _differing(declaration: TableDeclaration, target: str, scope: _Scope) -> str:
    """The query for what differs between the accepted rows of the affected keys, `{accepted}`, and a table's version."""
    keys, columns = declaration.keys, declaration.column_names
    of_table = f"{target} VERSION AS OF {scope.after} AS of_table WHERE {scope.within('of_table')}"
    computed, stored = (f"struct({', '.join(f'{side}.{identifier(name)}' for name in columns)})" for side in ("r", "t"))
    return (
        f"SELECT {', '.join(f'a.{identifier(key)} AS ratify_key_{key}' for key in keys)}, "
        f"{', '.join(f'r.{identifier(name)}' for name in columns)}, r.ratify_here IS NOT NULL AS ratify_present\n"
        f"FROM {_AFFECTED} AS a\n"
        f"LEFT JOIN (SELECT *, true AS ratify_here FROM {{accepted}}) AS r ON {_same_keys(keys, 'r', 'a')}\n"
        f"LEFT JOIN (SELECT *, true AS ratify_here FROM {of_table}) AS t ON {_same_keys(keys, 't', 'a')}\n"
        f"WHERE NOT (r.ratify_here <=> t.ratify_here) OR (r.ratify_here AND NOT ({computed} <=> {stored}))"
    )


def _same_keys(keys: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{identifier(key)} <=> {right}.{identifier(key)}" for key in keys)
