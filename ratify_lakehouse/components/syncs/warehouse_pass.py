"""One pass of a sync, by a SQL warehouse: its checks are queries there, and one statement changes the destination.

A warehouse takes neither user metadata nor a Delta `txn`. So a pass compares the rows each time, its statement may be sent
twice, and up to which version of a source the rows were inserted is in the condition of the MERGE, which the destination's
history has. Nor can the statement follow the version that was compared: where the history has other commits in between, the
pass is made again.

So it is with the fence of an erasure that came after the source was read. In the strategies that delete what the source has
not, the next pass takes the rows away that this one has written; in the others the run fails, and so does the next one,
until `ratify erase` was called again.
"""

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.components.syncs.accepted_rows import RowConversion
from ratify_lakehouse.components.syncs.compared_rows import Compared, RowComparison, SyncCounts, sample_sql
from ratify_lakehouse.components.syncs.duckdb_source import source_inputs
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import (
    SyncDestination,
    fitting_destination,
    missing_destination,
    new_destination,
)
from ratify_lakehouse.components.syncs.sync_pass import SyncResult, followed
from ratify_lakehouse.components.syncs.sync_position import COMMITS_READ, history_cut, insert_app_id
from ratify_lakehouse.components.syncs.warehouse_queries import DescribedTable, WarehouseQueries
from ratify_lakehouse.components.syncs.warehouse_source import source_on_warehouse
from ratify_lakehouse.delta.commit_history import SAME_ROWS, Commit
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.erasure_fence import ERASED, NotedFences, refuse_fenced, refuse_written, written_after
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.merge_statements import changes_merge_sql, insert_sql, marked_insert_sql
from ratify_lakehouse.errors import CommitConflict, ReadBeforeErasure, StatementFailed, TableMissing
from ratify_lakehouse.sql.spark_sql import at_version, literal, table_name

_PREDICATES = "notMatchedPredicates"
_DELETING = (SyncStrategy.MIRROR, SyncStrategy.FULL)
"""Modes in which a pass takes away what is not in the source."""


@dataclass(frozen=True)
class ComparedSource:
    """What a pass by the warehouse would do.

    Attributes:
        source: What it has read.
        destination: Where its rows go.
        compared: The counts, and the changes.
        fences: Has the fence that stands for the destination's, where that was missing.
        unchanged: Whether these rows were inserted before.
    """

    source: SourceRows
    destination: SyncDestination
    compared: Compared
    fences: NotedFences
    unchanged: bool = False


class WarehousePass:
    """A pass of a sync over a SQL warehouse."""

    def __init__(self, warehouse: SqlWarehouse, duckdb: DuckDB, sync: SyncDeclaration) -> None:
        self.queries, self._duckdb, self._sync = WarehouseQueries(warehouse), duckdb, sync

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self._sync.destination.full_name(self.queries.catalog_name)

    def run(self) -> SyncResult:
        """Write what differs.

        Raises:
            RowsNotConverted, SyncRefused, TableMissing, HistoryNotContinued, CommitConflict: as `SyncPass.run`.
            StatementFailed: the warehouse could not run a statement.
            WrittenAfterErasure: a data subject was erased after the source was read, and its rows may be written.
        """
        return followed(self._once, self._sync, self._inputs_by_now)

    def plan(self) -> tuple[SyncCounts, Sequence[Mapping[str, Any]]]:
        """Return what a run would do: the rows, by what is done with them, and some of them.

        Raises:
            As `run`.
        """
        with self._prepared() as prepared:
            return prepared.compared[0], self._sample(prepared)

    def _once(self) -> SyncResult:
        began = time.monotonic()
        with self._prepared() as prepared:
            destination, (counts, changes) = prepared.destination, prepared.compared
            sample, created = self._sample(prepared), not destination.exists
            if created:
                self.queries.warehouse.rows(destination.table.ddl(self.queries.catalog_name))
            commit, overtook = (None, False) if changes is None else self._write(prepared, changes)
            if commit:
                counts = _committed(counts, commit)
            version = commit.version if commit else self.queries.history(self.full_name, 1)[0].version
            return SyncResult(
                counts=counts,
                version=version,
                commit=commit,
                created=created,
                rows=self.queries.count(at_version(table_name(self.full_name), version)),
                inputs=prepared.source.inputs,
                seconds=time.monotonic() - began,
                sample=sample,
                lineage={column.name: prepared.source.lineage.get(column.source, ()) for column in destination.columns},
                types={column.name: column.type for column in destination.table.columns},
                unchanged=prepared.unchanged,
                overtook=overtook,
            )

    @contextmanager
    def _prepared(self) -> Generator[ComparedSource]:
        sync, found = self._sync, self._found()
        history, fences = list[Commit](), NotedFences(lambda: self._duckdb.log(f"{self.queries.catalog_name}.{ERASED}"))
        if found is None:
            fences.note(self.full_name, self._duckdb.log(self.full_name))
        elif sync.strategy not in _DELETING:
            history = self.queries.history(self.full_name, None if sync.strategy is SyncStrategy.APPEND else COMMITS_READ)
            refuse_written(self.full_name, history, self._planned_for)

        def until(inputs: Mapping[str, InputVersion], not_before: float = 0) -> int | None:
            return self._inserted_until(inputs, history, not_before)

        with source_on_warehouse(self.queries, self._duckdb, sync, until) as source:
            destination = self._destination(source, found)
            last = None if source.files else until(source.inputs)
            if last is not None and last >= source.version:
                yield ComparedSource(source, destination, (SyncCounts(), None), fences, unchanged=True)
                return
            accepted = RowConversion(self.queries, sync, source, destination).accepted()
            compared = RowComparison(self.queries, sync, destination, accepted).compared()
            yield ComparedSource(source, destination, compared, fences)

    def _found(self) -> DescribedTable | None:
        """The destination; None if it does not exist yet, and is to be created."""
        try:
            return self.queries.described(self.full_name)
        except TableMissing:
            if not self._sync.create_if_missing:
                raise missing_destination(self._sync, self.full_name) from None
            return None

    def _destination(self, source: SourceRows, found: DescribedTable | None) -> SyncDestination:
        if found is None:
            return new_destination(self._sync, source.types, self._duckdb.catalog)
        known = found.columns, found.properties, found.version, found.partitions
        return fitting_destination(self._sync, source.types, self._duckdb.catalog, self.full_name, *known)

    def _write(self, prepared: ComparedSource, changes: str) -> tuple[Commit, bool]:
        """Change the destination by one statement, and return its commit, and whether others came before.

        Raises:
            CommitConflict: another writer committed first, and nothing was changed.
            ReadBeforeErasure: a data subject was erased since the source was read, and nothing was changed.
            WrittenAfterErasure: see `run`.
        """
        sync, table, after = self._sync, prepared.destination.table, max(prepared.destination.version, 0)
        mark, by_mark, rows = f"ratify:{sync.name}:{after}:{uuid4().hex}", True, f"({changes})"
        match sync.strategy:
            case SyncStrategy.APPEND:
                app_ids = [insert_app_id(sync, inputs) for inputs in prepared.source.files or [prepared.source.inputs]]
                mark = ",".join([*(f"{app_id}:{prepared.source.version}" for app_id in app_ids), mark])
                # A statement that is sent twice inserts once: after the first, the table has other rows than before.
                name = table_name(self.full_name)
                now, then = (f"(SELECT count(*) AS n FROM {each})" for each in (name, at_version(name, after)))
                once = f"(SELECT r.* FROM {rows} AS r CROSS JOIN {now} AS a CROSS JOIN {then} AS b WHERE a.n = b.n)"
                statement = marked_insert_sql(table, self.full_name, once, mark)
            case SyncStrategy.FULL:
                statement, by_mark = insert_sql(table, self.full_name, rows, overwrite=True), False
            case _:
                marked = f"(SELECT *, {literal(mark)} AS ratify_mark FROM {rows})"
                statement = changes_merge_sql(table, self.full_name, marked, f"source.ratify_mark = {literal(mark)}")
        refuse_fenced(self.full_name, self._newer(after))
        prepared.fences.of(self.full_name)
        self.queries.write(statement)
        newer = self._newer(after)
        for commit in newer:
            if (mark in str(commit.parameters)) if by_mark else commit.parameters.get("mode") == "Overwrite":
                return commit, self._overtook(prepared, commit, newer)
        # Without its mark a commit of as many rows may be this one: a repetition would insert the rows again.
        inserted = prepared.compared[0].inserted
        if sync.strategy is SyncStrategy.APPEND and any(commit.rows_added == inserted for commit in newer):
            raise StatementFailed(
                f"The history of {self.full_name} does not say whether the {inserted} rows of the sync {sync.name} were "
                f"inserted after version {after}. Check for them before running it again."
            )
        raise CommitConflict(f"Another writer committed to {self.full_name} after version {after}, so nothing was written.")

    def _newer(self, after: int) -> list[Commit]:
        return [commit for commit in self.queries.history(self.full_name) if commit.version > after]

    def _overtook(self, prepared: ComparedSource, commit: Commit, newer: Sequence[Commit]) -> bool:
        """Return whether others have committed since the rows were compared, so that they are compared again.

        Raises:
            WrittenAfterErasure: an erasure has, and no comparison takes away what was written.
        """
        try:
            prepared.fences.of(self.full_name)
        except ReadBeforeErasure as error:
            if self._sync.strategy not in _DELETING:
                raise written_after(self.full_name, commit.version) from error
            return True
        if self._sync.strategy not in _DELETING:
            refuse_written(self.full_name, newer, self._planned_for)
        return any(each is not commit and (each.is_fence or each.operation not in SAME_ROWS) for each in newer)

    def _planned_for(self, commit: Commit) -> int | None:
        """The version that a statement of the sync was computed against; None of another commit."""
        found = re.search(rf"ratify:{re.escape(self._sync.name)}:(\d+):[0-9a-f]{{32}}", str(commit.parameters))
        return int(found.group(1)) if found else None

    def _inputs_by_now(self, inputs: Mapping[str, InputVersion]) -> Mapping[str, InputVersion]:
        query = self._sync.source.query
        if query is None or query.dialect == "duckdb":
            return source_inputs(self._duckdb, self._sync)
        found = {name: self.queries.described(name) for name in inputs}
        return {name: InputVersion(each.table_id, each.version) for name, each in found.items()}

    def _inserted_until(
        self, inputs: Mapping[str, InputVersion], history: Sequence[Commit], not_before: float
    ) -> int | None:
        """The version of such a source up to which the destination has its rows; None if it has none. See `Inserted`.

        Raises:
            SyncRefused: the history does not say that any more.
        """
        marked = re.compile(re.escape(insert_app_id(self._sync, inputs)) + r":(\d+)")
        for commit in history:
            if found := marked.search(str(commit.parameters.get(_PREDICATES, ""))):
                return int(found.group(1))
        versioned = all(each.version >= 0 for each in inputs.values())
        if versioned and history and history[-1].version > 0 and not_before < history[-1].timestamp.timestamp():
            raise history_cut(self._sync, self.full_name, history[-1].version)
        return None

    def _sample(self, prepared: ComparedSource) -> list[dict[str, Any]]:
        changes = prepared.compared[1]
        if changes is None:
            return []
        sampled = sample_sql(prepared.destination.table, keyed=self._sync.strategy.keyed)
        return self.queries.rows(self.queries.query(sampled, changes=changes))


def _committed(counts: SyncCounts, commit: Commit) -> SyncCounts:
    """The counts as the commit has them."""
    if commit.operation != "MERGE":
        return counts
    inserted, updated, deleted = (commit.metrics.get(f"numTargetRows{did}", 0) for did in ("Inserted", "Updated", "Deleted"))
    return SyncCounts(counts.read, counts.failed, inserted, updated, deleted)
