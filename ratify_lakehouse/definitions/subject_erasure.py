"""A subject erased: its rows deleted in every table, and what has them removed as far as each table allows that now."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

import dagster as dg

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledging, commit_acknowledged
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.erasure_plan import ErasurePlan, LandedHolding, Remaining, TableHolding
from ratify_lakehouse.definitions.interventions import refuse_in_use, report_intervention
from ratify_lakehouse.definitions.subject_scan import SubjectScan
from ratify_lakehouse.definitions.subject_survey import Subject, SubjectSurvey
from ratify_lakehouse.definitions.subject_traces import with_traces
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.erasure_fence import fencing, new_fence
from ratify_lakehouse.delta.table_clean import clean, may_clean_log
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.duckdb.table_compaction import compact
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import query_errors
from ratify_lakehouse.engines.spark.subject_deletion import delete_subject
from ratify_lakehouse.errors import (
    BadFile,
    FlinkUnavailable,
    RatifyError,
    StreamBusy,
    TableInUse,
    TableMissing,
    UnsafeTable,
)
from ratify_lakehouse.ingest.file_source import LandedCopy
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS, ErasureKey
from ratify_lakehouse.landing.file_moves import Moved, delete, remove_note, remove_partial_copies
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.spark_sql import literal, table_name

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeletedRows:
    """The rows of a subject in a table, deleted in one commit.

    Attributes:
        full_name: The table.
        version: Of the commit.
        rows: How many.
    """

    full_name: str
    version: int
    rows: int


@dataclass(frozen=True)
class RewrittenFile:
    """A landed file that was written again without the rows of a subject; one without others was deleted.

    Attributes:
        file: The file.
        rows: How many were removed.
    """

    file: LandedHolding
    rows: int


@dataclass(frozen=True)
class ErasureDone:
    """What an erasure did.

    Attributes:
        before: What had rows of the subject.
        after: What has something of it now.
        deleted: By table.
        files_removed: How many files were removed from each table, by its full name; other unneeded files are among them.
        landed_deleted: Landed files that are gone.
        landed_rewritten: Those that lack rows now.
        not_removed: Why files of a table stay, by its full name.
    """

    before: ErasurePlan
    after: ErasurePlan
    deleted: Sequence[DeletedRows]
    files_removed: dict[str, int]
    landed_deleted: Sequence[LandedHolding]
    landed_rewritten: Sequence[RewrittenFile]
    not_removed: dict[str, str]


@dataclass(frozen=True)
class SubjectErasure:
    """Erases a subject.

    Attributes:
        subject: Whom or what.
        survey: Finds what has rows of it.
        spark: Deletes them.
        instance: Has the runs in progress, and the pages of the assets.
        reason: Why it is right.
        all_rows: Whether a table may lose all of its rows.
    """

    subject: Subject
    survey: SubjectSurvey
    spark: Spark
    instance: dg.DagsterInstance
    reason: str
    all_rows: bool = False

    def run(self) -> ErasureDone:
        """Erase it. Whatever an error leaves, the next call does.

        The list of erased subjects is first, so that nothing is loaded again while rows go. Then, inputs first, each table
        is fenced, so that it gets no rows that were read before, and its rows go. Last, all other tables that are, or were,
        ours are fenced, and the list, for those that there are not yet (see `ratify_lakehouse.delta.erasure_fence`).

        Raises:
            UnsafeTable: a table with rows of it refuses, or has no other rows; nothing was changed.
            TableInUse: a run in progress targets such a table, or a stream that would read such records runs, or a job of
                Flink into a table with personal columns; nothing was changed.
            CommitConflict: other writers won every attempt to delete from a table; those before it are done.
            As `SubjectSurvey.plan`.
        """
        with ExitStack() as stack:
            self._hold_streams(stack)
            return self._erased()

    def _hold_streams(self, stack: ExitStack) -> None:
        """Keep streams of records from running meanwhile: one that runs has read the list of erased subjects before."""
        records = [table.declaration for table in self.survey.tables.record_tables]
        concerned = {table.table_name for table in records if self.subject.kind in table.subjects}
        streams = [each.table for each in self.survey.tables.streams if each.records.table_name in concerned]
        for table in (*records, *streams):
            if table in streams or table.table_name in concerned:
                try:
                    stack.enter_context(stream_checkpoints.exclusive(table))
                except StreamBusy as error:
                    raise TableInUse(
                        f"Nothing was changed. {error} Stop it (`ratify stream stop`, for the continuous mode), erase, and "
                        "start it again: then it leaves out the records of erased subjects."
                    ) from error
        # A job commits later what it has read before.
        for job in self.survey.tables.flink_tables:
            if job.declaration.personal:
                try:
                    stack.enter_context(job.stopped(self.spark.full_name(job.declaration)))
                except (StreamBusy, FlinkUnavailable) as error:
                    raise TableInUse(
                        f"Nothing was changed. {error} `ratify stream stop` stops the continuous mode; the next run of the "
                        "table, a job that was left on FLINK_REST."
                    ) from error

    def _erased(self) -> ErasureDone:
        before = self.survey.plan(self.subject)
        if refusals := before.refusals(all_rows=self.all_rows):
            raise UnsafeTable(f"Nothing was changed. {' '.join(refusals)}")
        declared = [table for table in before.tables if not table.undeclared and not table.unsearched]
        for table in (table for table in declared if table.matched):
            refuse_in_use(self.instance, self._declaration(table))
        self._remember()
        for folder in (Settings().discovery.archive, Settings().discovery.dead_letter):
            remove_partial_copies(self.survey.landing.below(folder))
        landed = list(self._delete_landed(before.landed))
        rewritten = list(self._rewrite_landed(before.landed))
        deleted = [done for table in declared if (done := self._cleared(table))]
        fenced = {table.full_name for table in declared}
        # After the last deletion, and before one looks which tables there are.
        self._fenced(self.spark.full_name(ERASED_SUBJECTS))
        unfenced = [*self._fence_others(name for name in before.to_fence if name not in fenced)]
        fenced.update(before.to_fence)
        files_removed, not_removed = dict[str, int](), dict[str, str]()
        for table in declared:
            try:
                files_removed[table.full_name] = self._removed(table)
            except UnsafeTable as error:
                not_removed[table.full_name] = str(error)
        after = self.survey.plan(self.subject)
        # Runs create tables meanwhile.
        while new := [name for name in after.to_fence if name not in fenced]:
            unfenced += self._fence_others(new)
            fenced.update(new)
            after = self.survey.plan(self.subject)
        after = replace(after, unsearched=[*after.unsearched, *unfenced])
        after = with_traces(after, self.instance, self.survey.duckdb.home, self.subject.value)
        return ErasureDone(before, after, deleted, files_removed, landed, rewritten, not_removed)

    def _cleared(self, table: TableHolding) -> DeletedRows | None:
        """Fence a table, and delete its rows, also those that others have written since it was looked at."""
        if self._fenced(table.full_name) != table.version + 1:
            with self.survey.duckdb.session() as session:
                scan = SubjectScan(self.survey.catalog, self.survey.duckdb, session, self.subject.value)
                table = next(iter(scan.holdings(table.full_name, table.matches)), table)
        return self._deleted(table) if table.matched else None

    def _fence_others(self, full_names: Iterable[str]) -> Iterable[Remaining]:
        """Fence tables whose rows are not deleted; yield those that cannot be."""
        for full_name in full_names:
            try:
                self._fenced(full_name)
            except TableMissing:
                continue
            except RatifyError as error:
                why = f"it cannot be fenced, so a run that has already read may still write some: {error}"
                yield Remaining(full_name, "rows, if there are any", "no such run goes on", why)

    def _fenced(self, full_name: str) -> int:
        """Fence a table, and return the version of that; Spark fences one that has a feature which is not supported here."""
        log, record = self.survey.duckdb.log(full_name), acknowledging(self.reason)
        try:
            return log.commit(partial(fencing, record=record), partitioned=True).version
        except UnsafeTable as error:
            logger.info("%s is fenced by Spark: %s", full_name, error)
        (property_,) = (f"'{name}' = '{value}'" for name, value in new_fence().items())
        text = f"ALTER TABLE {table_name(full_name)} SET TBLPROPERTIES ({property_})"
        commit = self.spark.commit(full_name, lambda: self.spark.rows(self.spark.sql(text)), record)
        return commit.version if commit else -1

    def _declaration(self, table: TableHolding) -> TableDeclaration | None:
        found = self.survey.tables.written_by(table.full_name.partition(".")[2])
        return found[1] if found else None

    def _remember(self) -> None:
        self.spark.ensure_table(ERASED_SUBJECTS)
        key = ErasureKey.stored(self.survey.duckdb.home, create=True)
        by = self.survey.catalog.principal() or ""
        digest = key.digest(self.subject.kind, self.subject.value)
        kind, digest, key_id, by, reason = map(literal, (self.subject.kind, digest, key.id, by, self.reason))
        merge = (
            f"MERGE INTO {self.spark.sql_name(ERASED_SUBJECTS)} AS t USING (SELECT {kind} AS kind, {digest} AS digest, "
            f"{key_id} AS key_id, {by} AS erased_by, current_timestamp() AS erased_at, {reason} AS reason) AS s "
            "ON t.kind = s.kind AND t.digest = s.digest AND t.key_id = s.key_id WHEN NOT MATCHED THEN INSERT *"
        )
        self.spark.commit(self.spark.full_name(ERASED_SUBJECTS), lambda: self.spark.rows(self.spark.sql(merge)))

    def _delete_landed(self, landed: Iterable[LandedHolding]) -> Iterable[LandedHolding]:
        for file in landed:
            if file.policy is LandedCopy.DELETE:
                if delete(LandingZone(url=file.root), file.path, file.fingerprint) is Moved.CHANGED:
                    continue
                self._remove_note(file)
                yield file

    def _rewrite_landed(self, landed: Iterable[LandedHolding]) -> Iterable[RewrittenFile]:
        files = [file for file in landed if file.policy is LandedCopy.REWRITE and not file.stays]
        if not {file.table for file in files}.isdisjoint(source.table_name for source in self.survey.tables.sources):
            self.spark.ensure_table(LANDED_FILES)
        for file in files:
            # If others have changed it meanwhile, the second plan has what is there.
            with suppress(BadFile):
                if (rows := self.survey.rewrite(file, self.subject)) is not None:
                    self._remove_note(file)
                    yield RewrittenFile(file, rows)

    def _remove_note(self, file: LandedHolding) -> None:
        if file.folder:
            remove_note(LandingZone(url=file.root), file.path)

    def _deleted(self, table: TableHolding) -> DeletedRows | None:
        commit = retried(lambda: self._commit(table), self.spark.attempts)
        if commit is None:
            return None
        metadata = {
            "Delta version": commit.version,
            "erased": f"a {self.subject.kind}, {table.matched} rows",
            "reason": self.reason,
        }
        report_intervention(self.instance, self._declaration(table), metadata)
        return DeletedRows(table.full_name, commit.version, table.matched)

    def _commit(self, table: TableHolding) -> Commit | None:
        def write() -> None:
            delete_subject(self.spark, table.full_name, table.matches, self.subject.value)

        with query_errors():
            version = self.survey.catalog.version(table.full_name)
            return commit_acknowledged(self.spark, table.full_name, write, self.reason, version)

    def _removed(self, table: TableHolding) -> int:
        """Write files with deleted rows again without them, and remove what no retained version needs."""
        log = self.survey.duckdb.log(table.full_name)
        with self.survey.duckdb.session() as session:
            # A target of one byte: only files with deleted rows.
            compact(session, self.survey.catalog, log, table.full_name, target_bytes=1, deleted_ratio=0)
        old_log = may_clean_log(self.survey.catalog, table.full_name)
        return len(clean(self.survey.catalog, log, old_versions=True, old_log=old_log))
