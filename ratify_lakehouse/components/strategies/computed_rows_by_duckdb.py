"""The rows that a pass by DuckDB has computed. Only what differs is written, with its record (see `computed_rows`)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.keyed_rows import check_keys_of
from ratify_lakehouse.components.query_engines import DuckDBRows, RowsToWrite
from ratify_lakehouse.components.strategies.destination_changes import counted
from ratify_lakehouse.components.strategies.input_versions import InputVersions
from ratify_lakehouse.components.strategies.pass_metadata import pass_metadata
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.components.strategies.rows_of_keys import (
    differing,
    no_changes,
    quarantined_of_keys,
    stored_failures_by_duckdb,
    stored_of_keys,
)
from ratify_lakehouse.components.table_asset import materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import QuarantineVersion, quarantine_record
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.live_rows import LiveRows
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.duckdb.row_merge import merge_changes, overwrite, table_rows, wrote
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_overtaken
from ratify_lakehouse.errors import CommitConflict
from ratify_lakehouse.sql.duckdb_sql import identifier


@dataclass(frozen=True)
class _Changes:
    """Changes of a table that are computed, and not committed yet.

    Attributes:
        declaration: The table.
        stored_at: Its version that the changes are computed against.
        table: Temporary table of the changes; empty where nothing differs.
        counts: How many rows are inserted, updated and deleted.
        rows: How many the table has before.
    """

    declaration: TableDeclaration
    stored_at: int
    table: str
    counts: Mapping[str, int]
    rows: int


@dataclass(frozen=True)
class RowsByDuckDB(DuckDBRows):
    """The rows that a pass has computed; none where none had to be."""

    scope: Scope
    inputs: InputVersions

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return [] if self.scope.nothing else super().records(sql)

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        if self.scope.why_full:
            return None
        return stored_failures_by_duckdb(self.session, expectations, written)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        scope, last = self.scope, self.scope.last
        shown = {**more, **pass_metadata(self.inputs.versions, last, scope.why_full, scope.changed), **scope.shown}
        accepted, *others = tables
        declaration, sql = accepted.declaration, accepted.sql
        began = time.monotonic()
        created = self.created(declaration)
        if scope.record.after < 0 and not created:
            raise CommitConflict(f"Another writer created {self.spark.full_name(declaration)} meanwhile.")
        quarantine = self._quarantined(declaration, others[0]) if others else None
        with table_rows(self.session, declaration) as stored:
            rows = sql if scope.nothing else self.wanted(declaration, sql, stored)
            changes = self._compared(declaration, rows, scope.record.after, stored, self._stored_of_keys)
            record = replace(
                scope.record, after=changes.stored_at, quarantine=quarantine and self._quarantine_version(quarantine[0])
            )
            result = self._merge(changes, stored, record.to_json(), recorded=scope.recorded)
        yield materialize_by(self.spark, declaration, created, began, result, self.session, **shown)
        if quarantine:
            began = time.monotonic()
            found, made = quarantine
            # The record that the table has now.
            of = record if result.commit or last is None else last
            result = self._merge_quarantined(found, quarantine_record(of, record.inputs))
            yield materialize_by(self.spark, found.declaration, made, began, result, self.session, **shown)

    def wanted(self, declaration: TableDeclaration, sql: str, stored: LiveRows) -> str:
        """Return the query, in which `{rows}` stands for the computed rows, for those that the table is to have.

        Args:
            declaration: The table.
            sql: The query for the accepted rows.
            stored: The rows that the table has.
        """
        return sql

    def _quarantined(self, table: TableDeclaration, given: RowsToWrite) -> tuple[_Changes, bool]:
        declaration, sql = given.declaration, given.sql
        created = self.created(declaration)

        def of_keys(stored: str) -> str:
            return quarantined_of_keys(table, stored, DUCKDB)

        after = self.before[self.spark.full_name(declaration)]
        # Two tables are not open at once: the changes are stored until that of the accepted rows is written.
        with table_rows(self.session, declaration) as stored:
            return self._compared(declaration, sql, after, stored, of_keys), created

    def _quarantine_version(self, found: _Changes) -> QuarantineVersion:
        table_id = self.spark.catalog.table(self.spark.full_name(found.declaration)).table_id or ""
        return QuarantineVersion(table_id, found.stored_at, follows=bool(found.table))

    def _stored_of_keys(self, stored: str) -> str:
        return stored_of_keys(self.scope.by, stored, self.scope.keys.within, DUCKDB)

    def _compared(
        self, declaration: TableDeclaration, sql: str, after: int, stored: LiveRows, of_keys: Callable[[str], str]
    ) -> _Changes:
        """Compare the computed rows with those that the table has, or with those of the affected keys."""
        version = stored.snapshot.version
        self._check_followed(declaration, version, after)
        nothing = {"inserted": 0, "updated": 0, "deleted": 0}
        if self.scope.nothing:
            return _Changes(declaration, version, "", nothing, stored.rows)
        every = f"({stored.select()})"
        relation = every if self.scope.why_full else f"({of_keys(every)})"
        if self.scope.last is None and stored.rows:
            check_keys_of(declaration, relation, DUCKDB, self.session.records)
        types = stored.types
        columns = ", ".join(
            f"CAST({identifier(each)} AS {types[each]}) AS {identifier(each)}" for each in declaration.column_names
        )
        text = differing(declaration, f"(SELECT {columns} FROM ({self.over(sql)}))", relation, DUCKDB)
        table = identifier(f"ratify_differing_{declaration.name}")
        self.session.con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {text}")
        (found,) = self.session.records(counted(declaration.keys, DUCKDB).replace("{changes}", table))
        counts = {did: found[did] for did in nothing}
        return _Changes(declaration, version, table if any(counts.values()) else "", counts, stored.rows)

    def _check_followed(self, declaration: TableDeclaration, version: int, after: int) -> None:
        """Check that what others have committed since the pass began leaves its record, or its comparison, right.

        Raises:
            CommitConflict: rows of affected keys alone were computed, and the table is no longer as its record says.
            Overtaken: another pass, which may have read newer inputs, has committed.
        """
        if version == after or after < 0:
            return
        full_name = self.spark.full_name(declaration)
        refuse_overtaken(self.spark, full_name, after)
        if not self.scope.why_full:
            raise CommitConflict(f"Another writer committed to {full_name} after its version {after}.")

    def _merge(self, changes: _Changes, stored: LiveRows, record: str, *, recorded: bool = False) -> WriteResult:
        if not (changes.table or recorded):
            return self._unchanged(changes)
        version = self._commit(changes, stored, record)
        rows = changes.rows + changes.counts["inserted"] - changes.counts["deleted"]
        return wrote(self.session, changes.declaration, version, rows, changes.counts)

    def _unchanged(self, changes: _Changes) -> WriteResult:
        return WriteResult(None, self.session.log(changes.declaration).refresh().version, changes.rows)

    def _merge_quarantined(self, found: _Changes, record: str) -> WriteResult:
        if not found.table:
            return self._unchanged(found)
        with table_rows(self.session, found.declaration) as stored:
            if stored.snapshot.version != found.stored_at:
                full_name = stored.snapshot.full_name
                raise CommitConflict(f"Another writer committed to {full_name} after its version {found.stored_at}.")
            return self._merge(found, stored, record)

    def _commit(self, changes: _Changes, stored: LiveRows, record: str) -> int:
        declaration = changes.declaration
        if not stored.rows and changes.table:
            # In the order of the keys, by which later passes leave out groups of rows.
            ordered = f"SELECT * FROM {changes.table} ORDER BY {DUCKDB.listed(declaration.keys)}"
            return overwrite(self.session, declaration, stored, ordered, changes.counts["inserted"], record)
        nothing = no_changes(declaration, attached(declaration.table_name), DUCKDB)
        text = f"SELECT * FROM {changes.table}" if changes.table else nothing
        return merge_changes(self.session, declaration, stored, text, record)
