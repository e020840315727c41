"""Looks for a subject in the tables and landed files of the project; nothing is changed."""

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from components.stream.record_table import RecordTable
from components.subject_columns import SubjectColumns
from components.yaml_tables import DeclaredTables
from ingest.file_source import LandedCopy, Source
from ingest.formats.isolated_parsing import parse
from ingest.formats.parse_file import ColumnsToAdd, Load, NewNames
from ingest.formats.unpacked_file import unpacked
from ingest.ledger.file_ledger import LANDED_FILES
from ingest.load.erased_subjects import ErasureKey
from ingest.load.landed_rewrite import LandedRewrite
from ingest.records.file_erasure import SubjectFiles
from ingest.records.file_records import FileSource
from orchestration.erasure_plan import ErasurePlan, LandedHolding, Remaining, TableHolding
from orchestration.subject_places import other_places, places_of_subjects
from resources.catalog.dropped_tables import dropped_tables
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import is_append_only
from resources.delta.expired_log import log_seconds
from resources.delta.maintenance_rules import Maintenance, maintenance_rules
from resources.delta.snapshot import Snapshot
from resources.delta.table_clean import deleted_file_seconds
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.duckdb.subject_search import HeldIn, holding_files, matching_rows
from resources.errors import BadFile, CatalogRejected, NotConfigured, TableMissing, UnsafeTable
from resources.landing.landing_zone import LandedFile, LandingZone
from resources.scratch_folders import scratch_folder
from resources.settings import Settings
from resources.sql.duckdb_sql import literal
from resources.sql.subject_match import VALUE, Match
from resources.wording import counted

_SHOWN = 12


@dataclass(frozen=True)
class Subject:
    """Whom or what to erase.

    Attributes:
        kind: As columns declare it, such as user.
        value: That identifies it.
    """

    kind: str
    value: str

    def __repr__(self) -> str:
        # So that no log has the value.
        return f"Subject({self.kind})"


@dataclass(frozen=True)
class SubjectSurvey:
    """Looks for subjects.

    Attributes:
        catalog: The catalog.
        duckdb: Reads tables and files.
        tables: The project's.
        landing: Where files land.
    """

    catalog: UnityCatalog
    duckdb: DuckDB
    tables: DeclaredTables
    landing: LandingZone

    def plan(self, subject: Subject) -> ErasurePlan:
        """Return what has rows of a subject.

        Raises:
            NotConfigured: no column identifies subjects of its kind.
            CatalogUnavailable, CatalogDenied, StorageUnavailable, LogUnreadable, LandingUnavailable.
        """
        columns = places_of_subjects(self.tables, cache(self._columns), subject.kind)
        if not columns.matches:
            raise NotConfigured(
                f"No column of the project identifies a {subject.kind}: declare `subject: {subject.kind}` for one "
                "(docs/erasure.md)."
            )
        key = None
        with suppress(NotConfigured):
            key = ErasureKey.stored(self.duckdb.home)
        with self.duckdb.session() as session:
            held = [
                replace(found, set_aside=name in columns.set_aside)
                for name, ways in columns.matches.items()
                if (found := self._table(session, name, ways, subject))
            ]
            landed = [
                each
                for source in self.tables.sources
                if (ways := columns.matches.get(source.table_name))
                for each in self._landed(session, source, ways, subject)
            ]
            for table in self.tables.record_tables:
                if ways := columns.matches.get(table.declaration.table_name):
                    landed += self._record_files(table, ways, subject)
            others = [*self._ledger(session, subject), *self._dropped(columns), *other_places(self.tables, columns)]
        digest = key.digest(subject.kind, subject.value)[:_SHOWN] if key else ""
        return ErasurePlan(subject.kind, digest, held, landed, others, columns.unfound)

    def rewrite(self, file: LandedHolding, subject: Subject) -> int | None:
        """Write a landed file again without the rows of a subject.

        Raises:
            As `LandedRewrite.rewrite` and `SubjectFiles.rewrite`.
        """
        for table in self.tables.record_tables:
            if table.declaration.table_name == file.table:
                return self._subject_files(table, file.matches, subject).rewrite(file.path)
        (source,) = (source for source in self.tables.sources if source.table_name == file.table)
        return self._rewriting.rewrite(source, file.folder, file.path, file.matches, subject.value)

    @property
    def _rewriting(self) -> LandedRewrite:
        return LandedRewrite(self.duckdb, self.landing, self.tables.sources)

    def _subject_files(self, table: RecordTable, matches: Sequence[Match], subject: Subject) -> SubjectFiles:
        return SubjectFiles(FileSource(table.options), self.duckdb, matches, subject.value)

    def _record_files(self, table: RecordTable, matches: Sequence[Match], subject: Subject) -> Iterable[LandedHolding]:
        if not table.source.events.files:
            return
        found = self._subject_files(table, matches, subject)
        for file, stays in found.holding():
            landed = (file.path, file.fingerprint, table.landed, matches, "", stays)
            yield LandedHolding(table.declaration.table_name, found.source.zone.root, *landed)

    def full_name(self, table: str) -> str:
        """Return the three-part name of a table."""
        return table if table.count(".") == 2 else f"{self.catalog.connection.name}.{table}"

    def _columns(self, table: str) -> Sequence[str]:
        try:
            return [column.name or "" for column in self.catalog.table(self.full_name(table)).columns or []]
        except TableMissing:
            return ()

    def _table(self, session: DuckDBSession, name: str, matches: Sequence[Match], subject: Subject) -> TableHolding | None:
        log = self.duckdb.log(self.full_name(name))
        holding = TableHolding(self.full_name(name), matches)
        try:
            snapshot = log.refresh()
        except TableMissing:
            return None
        except UnsafeTable as error:
            return replace(holding, refused=str(error), stays=[str(error)])
        if partitioned := [match.column for match in matches if match.column in snapshot.partition_columns]:
            text = f"it is partitioned by {partitioned[0]}, so that names of its folders have the value."
            return replace(holding, refused=text, stays=[text])
        files = holding_files(session, log, snapshot, matches, subject.value)
        live = {file.path for file in files if file.kind is HeldIn.LIVE}
        rows = sum(file.rows or 0 for file in log.files(snapshot))
        matched = matching_rows(session, log, snapshot, live, matches, subject.value)
        return replace(
            self._with_rules(holding, snapshot), version=snapshot.version, rows=rows, matched=matched, files=files
        )

    def _with_rules(self, holding: TableHolding, snapshot: Snapshot) -> TableHolding:
        """Add what the table allows, and for how long it keeps what is deleted."""
        stays, retained_s = list[str](), 0
        rules = maintenance_rules(self.catalog, holding.full_name).rules
        for rule in (rules[Maintenance.COMPACT], rules[Maintenance.CLEAN]):
            if not rule.allowed:
                stays.append(f"{rule.operation} is not allowed. {rule.reason} Instead: {rule.by}")
        try:
            retained_s = deleted_file_seconds(snapshot)
        except UnsafeTable as error:
            stays.append(str(error))
        append_only = is_append_only(snapshot.properties)
        refused = "it only allows appends (delta.appendOnly): switch that off first." if append_only else ""
        log_s = 0
        with suppress(UnsafeTable):
            log_s = log_seconds(snapshot) or 0
        return replace(holding, retained_s=retained_s, log_retained_s=log_s, refused=refused, stays=stays)

    def _ledger(self, session: DuckDBSession, subject: Subject) -> Iterable[Remaining]:
        try:
            session.log(LANDED_FILES).refresh()
        except TableMissing:
            return
        text = f"SELECT count(*) FROM {ALIAS}.{LANDED_FILES.table_name} WHERE contains(path, $1) OR contains(reason, $1)"
        ((entries,),) = session.rows(text, [subject.value])
        if entries:
            why = "paths of files, or reasons, have the value: it is no part of a row, and the ledger is not rewritten"
            yield Remaining(LANDED_FILES.table_name, counted(entries, "row"), "unknown", why)

    def _dropped(self, columns: SubjectColumns) -> Iterable[Remaining]:
        """Dropped tables of the schemas that have rows of such subjects: nobody knows what theirs were."""
        names = {self.full_name(name) for name in (*columns.matches, *columns.unfound)}
        for schema in sorted({name.rpartition(".")[0] for name in names}):
            with suppress(CatalogRejected, TableMissing):
                for table in dropped_tables(self.catalog, schema):
                    until = f"{table.retained_until:%Y-%m-%d %H:%M} UTC" if table.retained_until else "unknown"
                    why = f"dropped, and not searched: `ratify purge {table.full_name} --id {table.id}` deletes it"
                    yield Remaining(table.full_name, "unknown", until, why)

    def _landed(
        self, session: DuckDBSession, source: Source, matches: Sequence[Match], subject: Subject
    ) -> Iterable[LandedHolding]:
        options = Settings().discovery
        columns = source.table.columns if not source.table.inferred else session.columns(source.table)
        with scratch_folder(self.duckdb.home) as folder:
            for hidden in ("", options.archive, options.dead_letter):
                zone = self.landing.below(hidden)
                with zone.opened() as (fs, root):
                    exists = fs.exists(root)
                for file in zone.files(source.pattern) if exists else ():
                    local = zone.fetch(file.path, folder).local
                    reading = replace(source, table=replace(source.table, columns=tuple(columns)))
                    if _has_rows(session, reading, file, local, folder, matches, subject.value):
                        stays = ""
                        if source.landed is LandedCopy.REWRITE:
                            stays = self._rewriting.refusal(source, hidden, file.path, matches, subject.value)
                        landed = (file.path, file.fingerprint, source.landed, matches, hidden, stays)
                        yield LandedHolding(source.table_name, zone.root, *landed)


def _has_rows(
    session: DuckDBSession,
    source: Source,
    file: LandedFile,
    local: Path,
    folder: Path,
    matches: Sequence[Match],
    value: str,
) -> bool:
    """Whether a landed file has rows of the subject, as the loader reads it; of one that it cannot read, the bytes count."""
    parquet = folder / "landed.parquet"
    load = Load(dt.datetime.now(dt.UTC), "")
    try:
        parse(session.con, source, source.table.columns, file.path, local, parquet, load)
        condition = " OR ".join(match.duckdb for match in matches)
        text = f"SELECT count(*) FROM read_parquet({literal(str(parquet))}) WHERE {condition}"
        return bool(session.con.execute(text, {VALUE: value}).fetchall()[0][0])
    except (BadFile, ColumnsToAdd, NewNames):
        with suppress(BadFile), unpacked(source, file.path, local, folder) as (_, plain):
            return value.encode() in plain.read_bytes()
        return value.encode() in local.read_bytes()
    finally:
        parquet.unlink(missing_ok=True)
        local.unlink(missing_ok=True)
