"""Questions to the ledger of landed files: which files are settled, which are waiting, and what became of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.file_source import Source
from ingest.ledger.file_ledger import LedgerEntry, Status
from ingest.ledger.file_states import HeldContents, settled_entry
from ingest.ledger.ledger_index import LedgerIndex
from resources.duckdb.duckdb_engine import DuckDB, DuckDBSession
from resources.errors import TableMissing
from resources.landing.landing_zone import LandedFile, LandingZone


@dataclass(frozen=True)
class Total:
    """Entries of one status: how many, their rows and their bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0


@dataclass(frozen=True)
class TableEntries:
    """What the ledger has for one bronze table.

    Attributes:
        entries: All of them, in no order.
        held: Those whose rows are in the table.
    """

    source: Source
    entries: Sequence[LedgerEntry]
    held: HeldContents

    def settled(self, files: Sequence[LandedFile]) -> dict[LandedFile, LedgerEntry]:
        """Return the settling entry of each of those files whose present version is settled."""
        by_version = dict[tuple[str, str], list[LedgerEntry]]()
        for entry in self.entries:
            by_version.setdefault((entry.path, entry.fingerprint), []).append(entry)
        policy, digest = self.source.on_rewrite, self.source.digest
        found = {
            file: settled_entry(policy, digest, by_version.get((file.path, file.fingerprint), []), self.held)
            for file in files
        }
        return {file: entry for file, entry in found.items() if entry}

    def waiting(self, files: Sequence[LandedFile]) -> list[LandedFile]:
        """Return those of the files whose present version is not settled."""
        settled = self.settled(files)
        return [file for file in files if file not in settled]


def table_entries(session: DuckDBSession, source: Source, files: Sequence[LandedFile] | None = None) -> TableEntries:
    """Return what the ledger has for a source's table; of some files only, if they are given.

    Raises:
        As LedgerIndex.opened.
    """
    with LedgerIndex.opened(session) as index:
        try:
            table_id = session.log(source.table).refresh().uuid
        except TableMissing:
            return TableEntries(source, [], HeldContents([]))
        if files is None:
            return TableEntries(source, index.all_entries(table_id), HeldContents(index.all_held(table_id)))
        paths = [file.path for file in files]
        entries = index.entries(table_id, paths)
        contents = [sha256 for entry in entries for sha256 in (entry.sha256, entry.conflicts_with)]
        return TableEntries(source, entries, HeldContents(index.held(table_id, paths, contents)))


def waiting(duckdb: DuckDB, landing: LandingZone, source: Source) -> list[LandedFile]:
    """Return the landed files of a source whose present version is not settled."""
    files = landing.files(source.pattern)
    with duckdb.session() as session:
        return table_entries(session, source, files).waiting(files)


def states(session: DuckDBSession, source: Source) -> dict[str, LedgerEntry]:
    """Return what became of each path: the entry whose rows are in the table, or else the one of the latest version.

    Raises:
        As LedgerIndex.opened.
    """
    found = table_entries(session, source)
    latest = {entry.path: entry for entry in sorted(found.entries, key=lambda entry: entry.version)}
    return latest | {entry.path: entry for entry in sorted(found.held, key=lambda entry: entry.version)}


def totals(session: DuckDBSession) -> dict[Status, Total]:
    """Return the sums over the whole ledger, for each status."""
    with LedgerIndex.opened(session) as index:
        return dict.fromkeys(Status, Total()) | {Status(status): Total(*numbers) for status, *numbers in index.totals()}
