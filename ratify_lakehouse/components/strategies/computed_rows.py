"""The rows that a pass over an incremental table has computed. Only what differs is written, with the pass's record."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.keyed_rows import check_stored_keys
from ratify_lakehouse.components.query_engines import RowsToWrite
from ratify_lakehouse.components.strategies.pass_metadata import pass_metadata
from ratify_lakehouse.components.strategies.pass_scope import Scope
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.rows_of_keys import (
    differing,
    no_changes,
    quarantined_of_keys,
    stored_failures,
    stored_of_keys,
)
from ratify_lakehouse.components.table_asset import materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, QuarantineVersion, quarantine_record
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.merge_statements import TableChanges, fill_sql
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, refuse_overtaken
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CommitConflict
from ratify_lakehouse.sql.spark_sql import at_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_OF_A_FILE = 250_000
"""Of the first rows of a table."""


def failing_stored(spark: Spark, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int]:
    """Return how many rows of written tables fail expectations that tell it, counted by Spark (see `stored_failures`)."""
    named = [(each, spark.sql_name(each) if _may_have_rows(spark, each)[1] else "") for each in written]
    return stored_failures(expectations, named, lambda text: spark.rows(spark.query(text)))


def _may_have_rows(spark: Spark, table: TableDeclaration) -> tuple[int, bool]:
    """Return a table's version, and whether it may have rows then: no query counts them where its log does not tell."""
    full_name = spark.full_name(table)
    log = TableLog.opened(spark.catalog, full_name)
    return (log.version, log.rows() != 0) if log else (spark.catalog.version(full_name), True)


@dataclass(frozen=True)
class _Quarantined:
    """What is to be merged into a quarantine; None where nothing differs."""

    declaration: TableDeclaration
    created: bool
    version: QuarantineVersion
    changes: TableChanges | None
    rows: "DataFrame | None"


@dataclass(frozen=True)
class ComputedRows:
    """The rows that a pass has computed; None where none had to be.

    Attributes:
        before: The versions of the tables that are written, by full name, when no input was read yet.
    """

    spark: Spark
    frame: "DataFrame | None"
    scope: Scope
    inputs: QueryInputs
    before: Mapping[str, int]

    def records(self, sql: str) -> Sequence[Mapping[str, Any]]:
        rows = self._rows_of(sql)
        return [] if rows is None else self.spark.rows(rows)

    def write(self, tables: Sequence[RowsToWrite], **more: Any) -> Iterator[dg.MaterializeResult[Any]]:
        scope, last = self.scope, self.scope.last
        shown = {**more, **pass_metadata(self.inputs.versions, last, scope.why_full, scope.changed), **scope.shown}
        accepted, *others = tables
        declaration = accepted.declaration
        created = self.spark.ensure_table(declaration)
        if last is None and not created:
            check_stored_keys(self.spark, declaration)
        quarantined = self._quarantined(declaration, others[0]) if others else None
        record = replace(self.scope.record, quarantine=quarantined and quarantined.version)
        if record.after < 0 and not scope.why_full:
            if not created:
                raise CommitConflict(f"Another writer created {self.spark.full_name(declaration)} meanwhile.")
            record = replace(record, after=0)
        began = time.monotonic()
        wrote = self._merge(accepted, record)
        rows = self._previewed(accepted)
        yield materialize_by(self.spark, declaration, created, began, wrote, rows, **shown)
        if quarantined:
            began = time.monotonic()
            # The record that the table has now.
            of = record if wrote.commit or last is None else last
            wrote = self._merge_quarantined(quarantined, quarantine_record(of, record.inputs))
            rows, made = quarantined.rows, quarantined.created
            yield materialize_by(self.spark, quarantined.declaration, made, began, wrote, rows, **shown)

    def failing_stored(self, expectations: Expectations, written: Sequence[TableDeclaration]) -> Mapping[str, int] | None:
        return None if self.scope.why_full else failing_stored(self.spark, expectations, written)

    def _rows_of(self, sql: str) -> "DataFrame | None":
        return None if self.frame is None else self.spark.query(sql, rows=self.frame)

    def _previewed(self, accepted: RowsToWrite) -> "DataFrame | None":
        """Computed rows that the table has now; None: the table's own are shown."""
        return self._rows_of(accepted.sql) if accepted.number else None

    def _merge(self, accepted: RowsToWrite, record: ComputedInputs) -> WriteResult:
        wrote, declaration = self._merge_rows(accepted, record), accepted.declaration
        if wrote.commit or not self.scope.recorded:
            return wrote
        nothing = self.spark.sql(no_changes(declaration, self.spark.sql_name(declaration)))
        return self.spark.merge_changes(declaration, TableChanges(nothing), record.to_json(), record.after, "false")

    def _merge_rows(self, accepted: RowsToWrite, record: ComputedInputs) -> WriteResult:
        declaration, rows = accepted.declaration, self._rows_of(accepted.sql)
        if rows is None:
            return self.spark.write_result(declaration, None)
        if self.scope.why_full:
            return self._merge_all(accepted, rows, record)
        after, within = record.after, self.scope.keys.within
        stored = at_version(self.spark.sql_name(declaration), after)
        differing = self._differing(declaration, rows, f"({stored_of_keys(self.scope.by, stored, within)})")
        if differing is None:
            return self.spark.write_result(declaration, None)
        return self.spark.merge_changes(declaration, differing, record.to_json(), after, self.scope.keys.within("target"))

    def _merge_all(self, accepted: RowsToWrite, rows: "DataFrame", record: ComputedInputs) -> WriteResult:
        """Make the table equal to rows that are all of its query's; a pass that read newer inputs is not undone."""
        declaration, full_name = accepted.declaration, self.spark.full_name(accepted.declaration)
        stored = self.spark.write_result(declaration, None)
        refuse_overtaken(self.spark, full_name, record.after)
        record = replace(record, after=stored.version)
        if accepted.number and not stored.rows:
            # In files that each have a range of keys: later passes read those that may have the affected ones.
            files = -(-accepted.number // _ROWS_OF_A_FILE)
            ordered = rows.repartitionByRange(files, *declaration.keys).sortWithinPartitions(*declaration.keys)
            fill = fill_sql(declaration, full_name, "{rows}")
            return self.spark.merge_following(declaration, fill, ordered, record.to_json(), stored.version)
        every = at_version(self.spark.sql_name(declaration), stored.version)
        differing = self._differing(declaration, rows, f"(SELECT * FROM {every})")
        if differing is None:
            return self.spark.write_result(declaration, None)
        return self.spark.merge_changes(declaration, differing, record.to_json(), stored.version)

    def _quarantined(self, table: TableDeclaration, given: RowsToWrite) -> _Quarantined:
        declaration, created = given.declaration, self.spark.ensure_table(given.declaration)
        after, may_have_rows = _may_have_rows(self.spark, declaration)
        every = at_version(self.spark.sql_name(declaration), after)
        stored = f"SELECT * FROM {every}" if self.scope.why_full else quarantined_of_keys(table, every)
        rows = self._rows_of(given.sql)
        changes = None
        if rows is not None and (given.number or may_have_rows):
            changes = self._differing(declaration, rows, f"({stored})")
        table_id = self.spark.catalog.table(self.spark.full_name(declaration)).table_id or ""
        version = QuarantineVersion(table_id, after, follows=changes is not None)
        return _Quarantined(declaration, created, version, changes, rows if given.number else None)

    def _merge_quarantined(self, found: _Quarantined, record: str) -> WriteResult:
        if found.changes is None:
            return self.spark.write_result(found.declaration, None)
        full_name = self.spark.full_name(found.declaration)
        # Its changes follow a version that came after the inputs were read.
        refuse_erased(self.spark, full_name, self.before[full_name])
        return self.spark.merge_changes(found.declaration, found.changes, record, found.version.after)

    def _differing(self, declaration: TableDeclaration, rows: "DataFrame", stored: str) -> TableChanges | None:
        """What differs between computed rows and stored ones; None where nothing does."""
        text = differing(declaration, "{accepted}", stored)
        changes = self.spark.computed(self.spark.query(text, accepted=rows), now=False)
        counted = "SELECT count(*) AS n, count_if(ratify_found) AS found FROM {changes}"
        (found,) = self.spark.rows(self.spark.query(counted, changes=changes))
        return TableChanges(changes, only_new=not found["found"]) if found["n"] else None
