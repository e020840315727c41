"""Looks for a subject in the tables and landed files of the project; nothing is changed."""

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ratify_lakehouse.catalog.table_listing import stored_tables
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.stream.record_table import RecordTable
from ratify_lakehouse.components.subject_columns import ROW, SubjectColumns, SubjectTable
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.definitions.dropped_scan import DroppedScan
from ratify_lakehouse.definitions.erasure_plan import ErasurePlan, LandedHolding, Remaining, TableHolding
from ratify_lakehouse.definitions.subject_places import other_places, places_of_subjects, recorded_table, subject_tables
from ratify_lakehouse.definitions.subject_scan import SubjectScan
from ratify_lakehouse.definitions.subject_traces import written_forms
from ratify_lakehouse.definitions.undeclared_columns import OWN, undeclared_columns
from ratify_lakehouse.delta.recorded_writes import RecordedWrites, recorded_writes
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import (
    BadFile,
    CatalogDenied,
    LogUnreadable,
    NotConfigured,
    StorageUnavailable,
    TableMissing,
    UnsafeTable,
)
from ratify_lakehouse.ingest.file_source import LandedCopy, Source
from ratify_lakehouse.ingest.formats.isolated_parsing import parse
from ratify_lakehouse.ingest.formats.parse_file import ColumnsToAdd, Load, NewNames
from ratify_lakehouse.ingest.formats.unpacked_file import unpacked
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.erased_subjects import ErasureKey
from ratify_lakehouse.ingest.load.landed_rewrite import LandedRewrite
from ratify_lakehouse.ingest.load.landed_table import present_table
from ratify_lakehouse.ingest.records.file_erasure import SubjectFiles
from ratify_lakehouse.ingest.records.file_records import FileSource
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.subject_match import VALUE, Match
from ratify_lakehouse.wording import counted

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
        lister: Lists the tables that there are, as a principal who sees all of them; None: `catalog`.
    """

    catalog: UnityCatalog
    duckdb: DuckDB
    tables: DeclaredTables
    landing: LandingZone
    lister: UnityCatalog | None = None

    def plan(self, subject: Subject) -> ErasurePlan:
        """Return what has rows of a subject.

        Raises:
            NotConfigured: no column identifies subjects of its kind.
            CatalogUnavailable, CatalogDenied, StorageUnavailable, LogUnreadable, LandingUnavailable.
        """
        stored = stored_tables(self.lister or self.catalog)
        names = {name.casefold(): columns for name, columns in stored.items()}
        columns_of = cache(lambda name: names.get(name.casefold()) or self._columns(name))
        tables = subject_tables(self.tables, columns_of, stored)
        writes = self._writes(stored, {table.name.casefold() for table in tables} | OWN)
        every = [*tables, *(self._recorded(name, stored[name], found, columns_of) for name, found in writes.items())]
        columns = places_of_subjects(every, subject.kind)
        if not columns.matches:
            raise NotConfigured(
                f"No column of the project identifies a {subject.kind}: declare `subject: {subject.kind}` for one "
                "(docs/erasure.md)."
            )
        key = None
        with suppress(NotConfigured):
            key = ErasureKey.stored(self.duckdb.home)
        with self.duckdb.session() as session:
            letters = self._letters(session, stored)
            columns = places_of_subjects(every, subject.kind, letters)
            scan = SubjectScan(self.catalog, self.duckdb, session, subject.value)
            looked_at = self._looked_at(columns, tables, stored, letters)
            held = self._held(scan, columns, looked_at, letters, writes)
            files = [
                each
                for source in self.tables.sources
                if (ways := columns.matches.get(source.table_name))
                for each in self._landed(session, source, ways, subject)
            ]
            for table in self.tables.record_tables:
                if ways := columns.matches.get(table.declaration.table_name):
                    files += self._record_files(table, ways, subject)
            landed = [each for each in files if isinstance(each, LandedHolding)]
            unsearched = [each for each in files if isinstance(each, Remaining)]
            unsearched += DroppedScan(self.lister or self.catalog, session, subject.value).remaining(stored)
            others = [*self._ledger(session, subject), *other_places(self.tables, columns)]
        digest = key.digest(subject.kind, subject.value)[:_SHOWN] if key else ""
        known = {table.name.casefold() for table in every} | OWN
        there = {*names} & known
        to_fence = [self.full_name(name) for name in looked_at if name.casefold() in there or name.count(".") == 2]
        return ErasurePlan(subject.kind, digest, held, landed, others, columns.unfound, unsearched, to_fence)

    def _looked_at(
        self,
        columns: SubjectColumns,
        tables: Sequence[SubjectTable],
        stored: Mapping[str, Sequence[str]],
        letters: Collection[str],
    ) -> Mapping[str, Sequence[str]]:
        """The tables to look through, each with the columns that nothing is declared of.

        Those in which a column identifies the subject are first, inputs before what is computed from them.
        """
        undeclared = {name.casefold(): some for name, some in undeclared_columns(tables, columns, stored).items()}
        matched = {name.casefold() for name in columns.matches}
        others = [name for name in stored if name.casefold() in undeclared and name.casefold() not in matched]
        others += [DEAD_LETTERS.table_name] if letters and DEAD_LETTERS.table_name not in columns.matches else []
        return {name: undeclared.get(name.casefold(), ()) for name in (*columns.matches, *others)}

    def _held(
        self,
        scan: SubjectScan,
        columns: SubjectColumns,
        looked_at: Mapping[str, Sequence[str]],
        letters: Collection[str],
        writes: Mapping[str, RecordedWrites],
    ) -> list[TableHolding]:
        more = {DEAD_LETTERS.table_name: [Match(ROW, sync=sync, anywhere=True) for sync in letters]}
        return [
            replace(found, set_aside=name in columns.set_aside, written_by=str(writes.get(name) or ""))
            for name, undeclared in looked_at.items()
            for found in scan.holdings(self.full_name(name), columns.matches.get(name, ()), undeclared, more.get(name, ()))
        ]

    def _writes(self, stored: Iterable[str], known: Collection[str]) -> Mapping[str, RecordedWrites]:
        """Return the recorded writes of ours to tables that the catalog has and no declaration tells of."""
        found = dict[str, RecordedWrites]()
        for name in sorted(stored):
            if name.casefold() not in known:
                log = self.duckdb.log(self.full_name(name))
                # The scan has the reason.
                with suppress(CatalogDenied, LogUnreadable, StorageUnavailable, TableMissing, UnsafeTable):
                    if writes := recorded_writes(log, log.refresh()):
                        found[name] = writes
        return found

    def _recorded(
        self, name: str, columns: Sequence[str], writes: RecordedWrites, columns_of: Callable[[str], Sequence[str]]
    ) -> SubjectTable:
        inputs = [each.removeprefix(self.full_name("")) for each in sorted(writes.inputs)]
        return recorded_table(name, columns, inputs, columns_of)

    def _letters(self, session: DuckDBSession, stored: Mapping[str, Sequence[str]]) -> Mapping[str, Collection[str]]:
        """The tables that dead letters were read from, by syncs that are not declared any more, as one that was renamed."""
        if DEAD_LETTERS.table_name not in stored:
            return {}
        syncs = {sync.sync.name for sync in self.tables.syncs.values()}
        found = dict[str, set[str]]()
        for sync, read_from in session.rows(f"SELECT DISTINCT sync, read_from FROM {attached(DEAD_LETTERS.table_name)}"):
            if sync not in syncs:
                names: Mapping[str, object] = json.loads(read_from or "{}")
                found.setdefault(sync, set()).update(name.removeprefix(f"{self.full_name('')}") for name in names)
        return found

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

    def _record_files(
        self, table: RecordTable, matches: Sequence[Match], subject: Subject
    ) -> Iterable[LandedHolding | Remaining]:
        if not table.source.events.files:
            return
        found = self._subject_files(table, matches, subject)
        for file, stays in found.holding():
            if isinstance(stays, BadFile):
                yield _unsearched(f"{found.source.zone.root}/{file.path}", table.declaration.table_name, stays.reason)
                continue
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

    def _ledger(self, session: DuckDBSession, subject: Subject) -> Iterable[Remaining]:
        try:
            session.log(LANDED_FILES).refresh()
        except TableMissing:
            return
        text = f"SELECT count(*) FROM {attached(LANDED_FILES.table_name)} WHERE contains(path, $1) OR contains(reason, $1)"
        ((entries,),) = session.rows(text, [subject.value])
        if entries:
            why = "paths or reasons contain the value; they are not rows, and the ledger is not rewritten"
            yield Remaining(LANDED_FILES.table_name, counted(entries, "row"), "unknown", why)

    def _landed(
        self, session: DuckDBSession, source: Source, matches: Sequence[Match], subject: Subject
    ) -> Iterable[LandedHolding | Remaining]:
        options = Settings().discovery
        reading = replace(source, table=present_table(session, source))
        with scratch_folder(self.duckdb.home) as folder:
            for hidden in ("", options.archive, options.dead_letter):
                zone = self.landing.below(hidden)
                with zone.opened() as (fs, root):
                    exists = fs.exists(root)
                for file in zone.files(source.pattern) if exists else ():
                    local = zone.fetch(file.path, folder).local
                    has = _has_rows(session, reading, file, local, folder, matches, subject.value)
                    if isinstance(has, str):
                        yield _unsearched(f"{zone.root}/{file.path}", source.table_name, has)
                    elif has:
                        stays = ""
                        if source.landed is LandedCopy.REWRITE:
                            stays = self._rewriting.refusal(source, hidden, file.path, matches, subject.value)
                        landed = (file.path, file.fingerprint, source.landed, matches, hidden, stays)
                        yield LandedHolding(source.table_name, zone.root, *landed)


def _unsearched(place: str, table: str, reason: str) -> Remaining:
    return Remaining(
        place, f"rows of {table}, if there are any", "it is deleted by hand", f"it cannot be searched: {reason}"
    )


def _has_rows(
    session: DuckDBSession,
    source: Source,
    file: LandedFile,
    local: Path,
    folder: Path,
    matches: Sequence[Match],
    value: str,
) -> bool | str:
    """Whether a landed file has rows of the subject, as the loader reads it; of one that it cannot read, the bytes count.

    Of one whose bytes cannot be read either, as of a damaged archive, it returns the reason.
    """
    parquet = folder / "landed.parquet"
    load = Load(dt.datetime.now(dt.UTC), "")
    try:
        parse(session.con, source, source.table.columns, file.path, local, parquet, load)
        condition = " OR ".join(match.duckdb for match in matches)
        text = f"SELECT count(*) FROM read_parquet({literal(str(parquet))}) WHERE {condition}"
        return bool(session.con.execute(text, {VALUE: value}).fetchall()[0][0])
    except (BadFile, ColumnsToAdd, NewNames):
        content, forms = local.read_bytes(), [form.encode() for form in written_forms(value)]
        if any(form in content for form in forms):
            return True
        try:
            with unpacked(source, file.path, local, folder) as (_, plain):
                content = plain.read_bytes()
                return any(form in content for form in forms)
        except BadFile as error:
            # Of a text, the bytes were enough.
            with suppress(UnicodeDecodeError):
                content.decode()
                return False
            return "its bytes cannot be read" if value in error.reason else error.reason
    finally:
        parquet.unlink(missing_ok=True)
        local.unlink(missing_ok=True)
