"""Landed files that are written again without the rows of a subject, so that no load takes them for new ones.

The order of the steps is what makes a death between any two of them harmless:

1. The new bytes are made, and compared with the old ones.
2. The ledger gets an entry REWRITTEN of the new bytes: they count as the content that landed. A loader looks there after it
   has read a file, so that it never sees the new bytes without the entry.
3. The file is overwritten, in one step. Before it, the next erasure finds the rows and begins again.
4. The ledger gets an entry REPEATED of the file's new version. Without it the file is waiting, and the next load, which adds
   nothing, writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import BadFile, TableMissing
from ratify_lakehouse.ingest.file_source import LandedCopy, Source
from ratify_lakehouse.ingest.formats.isolated_parsing import remove_records
from ratify_lakehouse.ingest.formats.record_removal import ChosenRecords, Removal
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.load.landed_table import present_table
from ratify_lakehouse.landing.file_moves import Moved, delete, overwrite
from ratify_lakehouse.landing.landing_zone import FetchedFile, LandedFile, LandingZone, matcher
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.subject_match import Match

_REASON = "an erasure has removed rows"


@dataclass(frozen=True)
class LandedRewrite:
    """Rewrites landed files.

    Attributes:
        duckdb: Reads them, and writes the ledger.
        landing: The landing zone.
        sources: All of the project: a file may be one of several.
    """

    duckdb: DuckDB
    landing: LandingZone
    sources: Sequence[Source]

    def refusal(self, source: Source, folder: str, path: str, matches: Sequence[Match], value: str) -> str:
        """Return why a file could not be rewritten; empty if it could. Nothing is changed.

        Args:
            source: What it is one of.
            folder: In the landing zone, such as the archive; empty: the landing zone itself.
            path: In that folder.
            matches: How rows of the subject are known.
            value: The subject's.

        Raises:
            LandingUnavailable: it cannot be read.
        """
        if others := [each for each in self._readers(path) if each.landed is not LandedCopy.REWRITE]:
            return f"{others[0].table_name} has rows of it, too, and declares `landed: {others[0].landed}`"
        with scratch_folder(self.duckdb.home) as scratch, self.duckdb.session() as session:
            try:
                fetched = self.landing.below(folder).fetch(path, scratch)
                self._shorter(session, source, fetched, matches, value)
            except BadFile as error:
                # What a file has is no part of a report.
                return "it cannot be read" if value in error.reason else error.reason
        return ""

    def rewrite(self, source: Source, folder: str, path: str, matches: Sequence[Match], value: str) -> int | None:
        """Write a file again without the rows of a subject, or delete it where it has no others.

        Returns:
            How many rows were removed; None if the file is gone, or was changed by others meanwhile.

        Raises:
            BadFile: it cannot be rewritten; see `refusal`, also for the arguments.
            LandingUnavailable: it cannot be read or written.
            As FileLedger and its `record`.
        """
        zone = self.landing.below(folder)
        with scratch_folder(self.duckdb.home) as scratch, self.duckdb.session() as session:
            if not (present := zone.look([path])):
                return None
            fetched = zone.fetch(path, scratch)
            removal, shorter = self._shorter(session, source, fetched, matches, value)
            if not removal.left:
                return removal.removed if delete(zone, path, present[0].fingerprint) is Moved.DONE else None
            made = LandingZone(url=str(scratch)).fetch(shorter.name, scratch)
            name = f"{folder}/{path}" if folder else path
            ledgers = [ledger for each in self._readers(path) if (ledger := _ledger(session, each))]
            for ledger in ledgers:
                _record_bytes(ledger, replace(present[0], path=name), fetched, made, removal.removed)
            if overwrite(zone, path, present[0].fingerprint, shorter) is not Moved.DONE:
                return None
            if not folder and (file := self._settled_version(path, made, scratch)):
                for ledger in ledgers:
                    _record_version(ledger, file, made.sha256)
            return removal.removed

    def _readers(self, path: str) -> list[Source]:
        return [source for source in self.sources if matcher(source.pattern)(path)]

    def _shorter(
        self, session: DuckDBSession, source: Source, fetched: FetchedFile, matches: Sequence[Match], value: str
    ) -> tuple[Removal, Path]:
        present = present_table(session, source).columns
        names = {match.column.casefold() for match in matches}
        condition = " OR ".join(match.duckdb for match in matches)
        chosen = ChosenRecords([column for column in present if column.name.casefold() in names], condition, value)
        into = fetched.local.with_name(f"{fetched.local.name}-rewritten")
        removal = remove_records(session.con, source, fetched.path, fetched.local, into, chosen)
        if not removal.removed:
            raise BadFile(fetched.path, "none of its records is found by the columns that identify the subject")
        return removal, into

    def _settled_version(self, path: str, made: FetchedFile, scratch: Path) -> LandedFile | None:
        """The file as a listing shows it, if its bytes are what was made; None if others have written it since."""
        before = self.landing.look([path])
        if not before or self.landing.fetch(path, scratch).sha256 != made.sha256 or self.landing.look([path]) != before:
            return None
        return before[0]


def _ledger(session: DuckDBSession, source: Source) -> FileLedger | None:
    try:
        return FileLedger(session, session.log(source.table), source.table_name)
    except TableMissing:
        # It has loaded nothing.
        return None


def _record_bytes(ledger: FileLedger, file: LandedFile, fetched: FetchedFile, made: FetchedFile, removed: int) -> None:
    (landed,) = ledger.landed_contents([(file.path, fetched.sha256)])
    entry = FileOutcome(file.path, file.fingerprint, made.sha256, made.size, "", Status.REWRITTEN, reason=_REASON)
    ledger.record([replace(entry, rows=landed.removed + removed, conflicts_with=landed.sha256)])


def _record_version(ledger: FileLedger, file: LandedFile, sha256: str) -> None:
    (landed,) = ledger.landed_contents([(file.path, sha256)])
    if holder := ledger.held([], [landed.sha256]).holder(landed.sha256):
        entry = FileOutcome(file.path, file.fingerprint, landed.sha256, file.size, "", Status.REPEATED, reason=_REASON)
        ledger.record([replace(entry, repeated_of=holder.path)])
