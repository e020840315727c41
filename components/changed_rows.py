"""Spark as the engine of a table that is computed only where its inputs have changed (strategy `changes`).

A pass reads its inputs at fixed versions. The last commit of the table says up to which versions of them it was computed
(`computed_inputs`). What has changed since gives the keys of the table's rows that may differ (`affected_keys`). The query
is computed for these keys alone, and what differs from the table is merged into it, in one commit that records the versions.
If the table is not known to be as its last record says, or its query does not allow it, all rows are computed.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from components.landing_order import LANDING
from components.query_engines import SparkQueries, ValidatedRows
from components.sql_table import ValidatedQuery, materialize
from components.table_asset import materialize_by
from ingest.file_source import LOAD_COLUMNS
from ingest.ledger.file_ledger import LANDED_FILES, Status
from resources.declarations import CHANGE_DATA_FEED, TableDeclaration
from resources.delta.computed_inputs import COMMITS_READ, ComputedInputs, FullRecompute, InputVersion, last_computed
from resources.errors import CommitConflict, ExpectationFailed, TableMissing
from resources.spark.key_ranges import KeyRanges
from resources.spark.spark_engine import Spark, WriteResult
from resources.sql.affected_keys import keys_queries
from resources.sql.query_parts import NotDerivable
from resources.sql.spark_sql import identifier, literal, table_name
from resources.sql.table_query import TableName, TableQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOADED = {column.name for column in LOAD_COLUMNS}
_AFFECTED = "ratify_affected"
# Of a view, or a table that another catalog manages.
_NO_VERSION = -1


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
        self._inputs = _Inputs(spark, table.query)
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


@dataclass
class _Inputs:
    """The inputs of a query, at the versions that a pass reads."""

    spark: Spark
    query: TableQuery
    columns: dict[TableName, Sequence[str]] = field(default_factory=dict[TableName, Sequence[str]])
    _landed: dict[TableName, str] = field(default_factory=dict[TableName, str])
    _versions: dict[TableName, InputVersion] = field(default_factory=dict[TableName, InputVersion])

    @property
    def versions(self) -> dict[str, InputVersion]:
        """By full name."""
        return {self.full_name(name): version for name, version in self._versions.items()}

    def changed_since(self, last: ComputedInputs) -> list[TableName]:
        """Return the inputs of which another version is read than the last time.

        Raises:
            FullRecompute: one has no versions.
        """
        for name, version in self._versions.items():
            if version.version == _NO_VERSION:
                raise FullRecompute(f"{name} is not a managed table, so that it is not known whether it has changed")
        return [name for name in self._versions if last.inputs.get(self.full_name(name)) != self._versions[name]]

    def full_name(self, name: TableName) -> str:
        """With the catalog's name."""
        return name.full_name(self.spark.catalog.connection.name)

    def has_order(self, columns: Sequence[str]) -> bool:
        """Whether the query reads the landing order of an input with these columns."""
        return LANDING in self.query.text and _LOADED.issubset(columns)

    def found(self, name: TableName, columns: Sequence[str], landed: str) -> None:
        """Note an input's columns, and its latest version as the one to read.

        `landed` is the query for its rows with the landing order, if that is read.
        """
        if name in self.columns:
            return
        full_name = self.full_name(name)
        table = self.spark.catalog.table(full_name)
        table_id, managed = table.table_id or "", table.table_type is not None and table.table_type.value == "MANAGED"
        version = self.spark.catalog.version(full_name) if managed else _NO_VERSION
        landings = self._landings(table_id) if landed else 0
        self.columns[name] = [*columns, LANDING] if landed else list(columns)
        self._landed[name] = landed
        self._versions[name] = InputVersion(table_id, version, landings)

    def _landings(self, table_id: str) -> int:
        repeated = f"table_id = {literal(table_id)} AND status = {literal(Status.REPEATED.value)}"
        counted = self.spark.sql(f"SELECT count(*) AS n FROM {self.spark.sql_name(LANDED_FILES)} WHERE {repeated}")
        return int(self.spark.rows(counted)[0]["n"])

    def at(self, name: TableName, version: int | None = None) -> str:
        """The table at a version, by default at the one that is read."""
        chosen = self._versions[name].version if version is None else version
        named = table_name(self.full_name(name))
        return named if chosen == _NO_VERSION else f"{named} VERSION AS OF {chosen}"

    def create_changed_view(self, number: int, name: TableName, last: ComputedInputs) -> None:
        """Compute an input's rows that have changed since the last time, as they were and as they are, as a view.

        Raises:
            FullRecompute: they cannot be known.
        """
        from pyspark.errors import PySparkException

        now, since = self._versions[name], last.inputs.get(self.full_name(name))
        if since is None or since.table_id != now.table_id or since.version > now.version:
            raise FullRecompute(f"{name} is another table than before")
        if self._landed[name]:
            raise FullRecompute(f"files of {name} landed, whose order the query reads")
        listed = ", ".join(map(identifier, self.columns[name]))
        before, after = (f"SELECT {listed} FROM {self.at(name, version)}" for version in (since.version, now.version))
        compared = f"({before} EXCEPT ALL {after}) UNION ALL ({after} EXCEPT ALL {before})"
        properties = self.spark.catalog.table(self.full_name(name)).properties or {}
        feed = f"table_changes({literal(table_name(self.full_name(name)))}, {since.version + 1}, {now.version})"
        texts = [f"SELECT {listed} FROM {feed}"] if properties.get(CHANGE_DATA_FEED) == "true" else []
        reason = ""
        for text in [*texts, compared]:
            try:
                rows = self.spark.computed(self.spark.sql(text))
            except PySparkException as error:
                # The feed may be younger than the changes, and a version may be cleaned up.
                reason = str(error).strip().splitlines()[0][:200]
            else:
                rows.createOrReplaceTempView(f"ratify_changed_{number}")
                return
        raise FullRecompute(f"what changed in {name} since version {since.version} cannot be read: {reason}")

    def create_every_view(self, number: int, name: TableName, *, changed: bool) -> None:
        """Define the view of all rows that an input has, or had before the changes."""
        listed = ", ".join(map(identifier, self.columns[name]))
        text = f"SELECT {listed} FROM {self._landed[name] or self.at(name)}"
        if changed:
            text += f" UNION ALL SELECT {listed} FROM ratify_changed_{number}"
        self.spark.sql(text).createOrReplaceTempView(f"ratify_every_{number}")


@dataclass(frozen=True)
class _ChangedRows:
    """The rows that a pass has computed."""

    spark: Spark
    frame: "DataFrame"
    scope: _Scope
    inputs: _Inputs

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
