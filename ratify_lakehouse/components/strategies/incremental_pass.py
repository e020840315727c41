"""A pass over a table that is computed only where its inputs have changed: what it decides, whatever the engine."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.engine_failures import without_values
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.input_versions import InputVersions
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.pass_scope import VERSIONS_READ_AGAIN, DaysAgain, Scope
from ratify_lakehouse.components.strategies.rows_of_keys import check_key_types
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import (
    COMMITS_READ,
    ComputedInputs,
    FullRecompute,
    last_computed,
    with_quarantine,
)
from ratify_lakehouse.engines.spark.key_ranges import NO_KEYS, KeyRanges
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import first_line
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.affected_keys import KeysQuery, keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable
from ratify_lakehouse.sql.table_query import TableName

Inputs = TypeVar("Inputs", bound=InputVersions)


class IncrementalPass(ABC, Generic[Inputs]):
    """One pass over a table; an engine adds how it reads, computes and writes."""

    catalog: UnityCatalog
    dialect: RuleDialect
    _spark: Spark
    _before: Mapping[str, int]
    _inputs: Inputs

    def begin(self, table: ValidatedQuery, again: DaysAgain | None, why_full: str) -> None:
        """Note what the pass is over.

        Args:
            table: The table.
            again: The rows of these days are computed as well.
            why_full: Why all rows are computed; empty where those are that changes affect.
        """
        self._table, self._again, self._why_full = table, again, why_full
        self._scope: Scope | None = None

    @abstractmethod
    def stored(self, declaration: TableDeclaration) -> str:
        """Return the name of a table that exists, in SQL."""

    @abstractmethod
    def ensure(self, declaration: TableDeclaration) -> bool:
        """See `QueryEngine`."""

    @abstractmethod
    def records(self, text: str, what: str = "") -> Sequence[Mapping[str, Any]]:
        """Run a query, and return its rows.

        Args:
            text: The query.
            what: What it computes of the changes, if all rows are to be computed where it fails.

        Raises:
            FullRecompute: it fails.
        """

    @abstractmethod
    def keys_found(
        self, text: str, declaration: TableDeclaration, changed: Mapping[TableName, str]
    ) -> tuple[KeyRanges, Mapping[str, int]]:
        """Compute the affected keys as the view `AFFECTED`, and count the changed rows of each input.

        Args:
            text: Query that gives each of the keys once.
            declaration: The table.
            changed: The views of changed rows.

        Raises:
            FullRecompute: they cannot be computed.
        """

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
            keys=keys,
            changed=changed,
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

    @property
    def hides(self) -> bool:
        """Return whether the table has personal data, or is computed from some."""
        return self._table.personal.concerned(self._table.declaration.table_name)

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
            raise FullRecompute("its query or declaration has changed")
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
        keys = self.dialect.listed(declaration.keys)
        texts = [f"SELECT {keys} FROM ({each.text})" for each in queries if each.input in changed]
        texts += self._asked_for(declaration, text)
        if not texts:
            return NO_KEYS, {}
        # Its types are those of the table also where nothing has changed.
        texts.append(f"SELECT {keys} FROM {self.stored(declaration)} WHERE false")
        union = "\nUNION ALL\n".join(f"({each})" for each in texts)
        every = self._inputs.with_every(changed)
        ranges, counts = self.keys_found(f"{every}\nSELECT DISTINCT {keys} FROM (\n{union}\n)", declaration, changed)
        if self._table.quarantine and not ranges.readable:
            raise FullRecompute("its quarantine has rows as JSON, in which a changed key, which is not UTF-8, is not exact")
        return ranges, counts

    def _asked_for(self, declaration: TableDeclaration, text: str) -> list[str]:
        """The queries for the keys of the rows of the days that are to be computed again, whatever has changed."""
        if self._again is None:
            return []
        keys = self.dialect.listed(declaration.keys)
        of_days = f"CAST({self.dialect.identifier(self._again.column)} AS DATE) BETWEEN {self._again.between}"
        return [f"SELECT {keys} FROM {rows} WHERE {of_days}" for rows in (f"(\n{text}\n)", self.stored(declaration))]


def not_computed(what: str, error: Exception, *, hides: bool) -> FullRecompute:
    """Return why all rows are computed where those of the keys that changes affect cannot be.

    To find them, an engine may evaluate expressions for rows that the query itself leaves out before. `hides`: whether
    values that the error quotes may be personal; runs show the reason.
    """
    text = first_line(str(error))
    return FullRecompute(f"the {what} that changes affect cannot be computed: {without_values(text) if hides else text}")
