"""A table that is computed partition by partition (strategy `partition`), whatever the engine.

A pass computes the query for some partitions, and replaces their rows by one commit, in which unchanged rows stay. The
partitions are those that a run was asked for, or the stale ones: those that rows changed in the inputs affect since the
versions that the table's record has of them (see `changed_rows`, whose keys are here the values of the partitions' column).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import dagster as dg

from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.strategies.incremental_pass import IncrementalPass, Inputs
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.pass_scope import VERSIONS_READ_AGAIN, Scope
from ratify_lakehouse.components.strategies.stale_partitions import StalePartitions, outside_described
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions, named
from ratify_lakehouse.components.table_asset import asset_key, data_version_tags
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion, PartitionInputs
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_overtaken
from ratify_lakehouse.sql.affected_keys import KeysQuery, keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable

OUTSIDE, OUTSIDE_DESCRIBED = "rows in no partition", "in no partition"
"""Metadata keys of a materialization: how many rows of the query belong to no partition, and for people which ones."""

_OF_EACH = {"Delta version", "inputs read", OUTSIDE, OUTSIDE_DESCRIBED}
_MOST_RECORDED = 8
"""Groups of partitions with versions of their own in a record. Each costs the next pass a look at what changed since."""


class PartitionScope(IncrementalPass[Inputs]):
    """Decides what a pass over a table with partitions computes: the rows of those chosen, or of the stale ones."""

    def of(self, partitions: TablePartitions, chosen: Sequence[str] | None) -> Self:
        """Note the partitions, and which of them are computed; return the pass.

        Args:
            partitions: All of them.
            chosen: The ones to compute; None: the stale ones.
        """
        self._partitions, self._chosen = partitions, chosen
        self._computed: Sequence[str] = ()
        self._changed = frozenset[str]()
        self._found_out = self._hidden = False
        self._outside: Mapping[str, Any] = {}
        return self

    def declared_beside(self) -> list[Any]:
        """See `IncrementalPass`."""
        return [self._partitions]

    def scope(self, record: ComputedInputs, declaration: TableDeclaration, text: str) -> Scope:
        """See `IncrementalPass`: the rows of the chosen partitions, or of the stale ones."""
        self._partitions.check_type(declaration)
        self._hidden = self._partitions.column in declaration.personal
        self._outside = self._rows_outside(declaration, text)
        keys = self._partitions.keys
        record = replace(record, last_partition=keys[-1] if keys else "")
        if self._chosen is None:
            stale, last = self.stale(record, declaration)
            # Whether rows differ or not, those of which no record tells are known from now on.
            self._found_out = bool(stale.forgotten or (stale.why_all and not stale.lasting))
            self._changed = frozenset(stale.changed)
            self._computed = keys if stale.why_all else sorted({*stale.changed, *stale.uncomputed, *stale.forgotten})
            return self._scope_of(declaration, record, last, stale.why_all)
        self._computed = [key for key in keys if key in set(self._chosen)]
        last, reason = self._last_or_none(record, declaration)
        unknown = reason or _unknown(last)
        new = record.after < 0
        if reason and not new:
            # A query that is another than before may have other columns; a table gets them before its version is read.
            self.ensure(declaration)
            after = self.catalog.version(self._spark.full_name(declaration))
            refuse_overtaken(self._spark, self._spark.full_name(declaration), record.after)
            record = replace(record, after=after)
        every = len(self._computed) == len(keys)
        return self._scope_of(declaration, self._of_chosen(record, last, new=new), last, unknown if every else "")

    def stale(self, now: ComputedInputs, declaration: TableDeclaration) -> tuple[StalePartitions, ComputedInputs | None]:
        """Return the stale partitions, and the record that the table has; None where it is not known to be as one says."""
        last, reason = self._last_or_none(now, declaration)
        if last is None or (reason := _unknown(last)):
            return StalePartitions(why_all=reason), None
        try:
            return self._stale(last), last
        except (FullRecompute, NotDerivable) as why:
            return StalePartitions(why_all=str(why), lasting=not isinstance(why, FullRecompute) or why.lasting), last

    def plan(self, declaration: TableDeclaration) -> PassPlan:
        """See `IncrementalPass`."""
        record = self.record(declaration)
        last, reason = self._last_or_none(record, declaration)
        if reason := reason or _unknown(last):
            return PassPlan.of(record, None, reason)
        if last and not last.inputs:
            return replace(PassPlan.of(record, last), why="no run has computed all partitions yet")
        return super().plan(declaration)

    def _keys_queries(self, declaration: TableDeclaration) -> Sequence[KeysQuery]:
        return keys_queries(self._table.query, [self._partitions.column], self._inputs.columns, unknown=[LANDING])

    def _last_or_none(self, now: ComputedInputs, declaration: TableDeclaration) -> tuple[ComputedInputs | None, str]:
        try:
            return self._last(now, declaration), ""
        except FullRecompute as reason:
            return None, str(reason)

    def _stale(self, last: ComputedInputs) -> StalePartitions:
        column, queries = self._partitions.column, self._keys_queries(self._table.declaration)
        found, uncomputed, sql = dict[str, dict[str, tuple[int, int]]](), set[str](), self.dialect
        for inputs, keys in self._by_inputs(last):
            if not inputs:
                uncomputed |= keys
                continue
            changed = self._inputs.create_views(replace(last, inputs=inputs))
            texts = [
                f"SELECT CAST({sql.identifier(column)} AS STRING) AS key, {sql.literal(str(each.input))} AS input, "
                f"{inputs[self._inputs.full_name(each.input)].version} AS since, ratify_rows FROM ({each.text})"
                for each in queries
                if each.input in changed
            ]
            if texts and keys:
                every = self._inputs.with_every(changed)
                union = " UNION ALL ".join(texts)
                total = f"{every} SELECT key, input, since, sum(ratify_rows) AS n FROM ({union}) GROUP BY ALL"
                for row in self.records(total, "keys"):
                    if row["key"] in keys:
                        found.setdefault(row["key"], {})[row["input"]] = (row["n"], row["since"])
        forgotten = {key for group in last.partitions if not group.inputs for key in group.partitions}
        return StalePartitions(found, sorted(uncomputed - forgotten), sorted(uncomputed & forgotten))

    def _by_inputs(self, last: ComputedInputs) -> Iterator[tuple[Mapping[str, InputVersion], set[str]]]:
        """The partitions that there are now, by the versions of the inputs that they were computed from."""
        rest = set(self._partitions.keys)
        for group in last.partitions:
            yield group.inputs, rest.intersection(group.partitions)
            rest.difference_update(group.partitions)
        new = {key for key in rest if self._partitions.start and key > last.last_partition}
        yield {}, new
        yield last.inputs, rest - new

    def _of_chosen(self, record: ComputedInputs, last: ComputedInputs | None, *, new: bool) -> ComputedInputs:
        """The record of a pass that computes the chosen partitions alone, of a table that is new or not."""
        if len(self._computed) == len(self._partitions.keys):
            return record
        groups = dict[str, PartitionInputs]()
        for group in [*(last.partitions if last else ()), PartitionInputs(tuple(self._computed), record.inputs)]:
            others = group.partitions if group.inputs is record.inputs else set(group.partitions).difference(self._computed)
            same = groups.pop(str(group.inputs), PartitionInputs((), group.inputs))
            if others:
                groups[str(group.inputs)] = replace(same, partitions=tuple(sorted({*same.partitions, *others})))
        recorded = list(groups.values())
        if len(recorded) > _MOST_RECORDED:
            forgotten = sorted(key for group in recorded[: 1 - _MOST_RECORDED] for key in group.partitions)
            recorded = [PartitionInputs(tuple(forgotten), {}), *recorded[1 - _MOST_RECORDED :]]
        return replace(
            record,
            inputs=last.inputs if last else {},
            partitions=tuple(recorded),
            last_partition=last.last_partition if last else record.last_partition,
            rest_known=last.rest_known if last else new,
        )

    def _scope_of(
        self, declaration: TableDeclaration, record: ComputedInputs, last: ComputedInputs | None, why_full: str
    ) -> Scope:
        column = self._partitions.column
        shown = {
            "strategy": "full" if why_full else "partition",
            "partitions computed": len(self._computed),
            "partitions": ("…" if self._hidden else named(self._computed)) if self._computed else "none",
            OUTSIDE: self._outside["rows"],
        }
        if self._outside["rows"]:
            shown[OUTSIDE_DESCRIBED] = outside_described(self._outside, self._partitions.column, hidden=self._hidden)
        moved = last.moved(self._inputs.versions) >= VERSIONS_READ_AGAIN if last else record.after >= 0
        recorded = (moved or self._found_out) and self._chosen is None
        if not self._computed:
            return Scope((column,), "", record, last, recorded, shown=shown)
        values = self._partitions.values_of(self._computed, declaration.column_types[column], self.dialect)
        found, _ = self.keys_found(values, replace(declaration, keys=(column,)), {})
        return Scope((column,), why_full, record, last, recorded, found, shown=shown)

    def _rows_outside(self, declaration: TableDeclaration, text: str) -> Mapping[str, Any]:
        """How many rows of the query are in no partition, and the values of the column that they have."""
        column = self.dialect.identifier(self._partitions.column)
        outside = self._partitions.outside("q", declaration.column_types[self._partitions.column], self.dialect)
        (found,) = self.records(
            f"SELECT count(*) AS rows, count_if(q.{column} IS NULL) AS nulls, CAST(min(q.{column}) AS STRING) AS least, "
            f"CAST(max(q.{column}) AS STRING) AS greatest FROM (\n{text}\n) AS q WHERE {outside}"
        )
        return found

    def materializations(self, of_table: dg.MaterializeResult[Any]) -> Iterator[dg.AssetMaterialization]:
        """Yield a materialization of each partition that was computed, if it has rows or has changed."""
        if self._scope is None or not self._computed:
            return
        name, column = self.stored(self._table.declaration), self.dialect.identifier(self._partitions.column)
        counts = self.records(
            f"SELECT CAST(t.{column} AS STRING) AS key, count(*) AS n FROM {name} AS t "
            f"WHERE {self._scope.keys.within('t')} GROUP BY 1"
        )
        rows = {row["key"]: row["n"] for row in counts}
        for key in self._computed:
            if key in rows or key in self._changed:
                yield dg.AssetMaterialization(
                    asset_key=asset_key(self._table.declaration),
                    partition=key,
                    metadata={
                        "dagster/partition_row_count": rows.get(key, 0),
                        **{name: value for name, value in (of_table.metadata or {}).items() if name in _OF_EACH},
                    },
                    tags=data_version_tags(of_table),
                )


def _unknown(last: ComputedInputs | None) -> str:
    """Why it is not known which partitions are stale, though the table has a record; empty if it is."""
    if last is None or last.rest_known:
        return ""
    return "a run computed only chosen partitions while the input versions of the others were unknown"
