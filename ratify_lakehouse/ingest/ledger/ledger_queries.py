"""Questions to the ledger of landed files: which files are settled, which are waiting, and what became of all of them."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.file_states import HeldContents, settled_entry
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.ledger.ledger_index import LEDGER_COLUMNS, LedgerIndex, entry_of
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone


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


def table_entries(session: DuckDBSession, source: Source, paths: Collection[str] | None = None) -> TableEntries:
    """Return what the ledger has for a source's table; for some paths only, if they are given.

    Raises:
        As LedgerIndex.opened.
    """
    try:
        ledger = FileLedger(session, session.log(source.table), source.table_name)
    except TableMissing:
        return TableEntries(source, [], HeldContents([]))
    with LedgerIndex.opened(session) as index:
        if paths is None:
            entries, held = index.all_entries(ledger.table_id), index.all_held(ledger.table_id)
        else:
            entries = index.entries(ledger.table_id, paths)
            contents = [sha256 for entry in entries for sha256 in (entry.sha256, entry.conflicts_with)]
            held = index.held(ledger.table_id, paths, contents)
        withdrawn = ledger.withdrawn(index)
    return TableEntries(source, entries, HeldContents(entry for entry in held if entry.sha256 not in withdrawn))


def waiting(duckdb: DuckDB, landing: LandingZone, source: Source) -> list[LandedFile]:
    """Return the landed files of a source whose present version is not settled."""
    files = landing.files(source.pattern)
    with duckdb.session() as session:
        return table_entries(session, source, [file.path for file in files]).waiting(files)


# One version may replace rows of a path by others; what came from no version was decided after the latest one.
_WITHIN_VERSION = {Status.WITHDRAWN: 0, Status.LOADED: 1, Status.REPEATED: 2, Status.REFUSED: 2}


def latest_entries(session: DuckDBSession, source: Source, paths: Collection[str]) -> dict[str, LedgerEntry]:
    """Return the latest entry of each of these paths that has one.

    Raises:
        As LedgerIndex.opened.
    """
    entries = (entry for entry in table_entries(session, source, paths).entries if entry.status is not Status.REWRITTEN)
    return {entry.path: entry for entry in sorted(entries, key=lambda entry: (entry.version, _WITHIN_VERSION[entry.status]))}


def refused_entries(session: DuckDBSession, source: Source) -> list[LedgerEntry]:
    """Return the refusal of each path that no later version of the file has settled.

    Raises:
        As LedgerIndex.opened.
    """
    with LedgerIndex.opened(session) as index:
        refused = index.refused_paths(session.log(source.table).refresh().uuid)
    return [entry for entry in latest_entries(session, source, refused).values() if entry.status is Status.REFUSED]


def repeats(session: DuckDBSession, source: Source) -> int:
    """Return how often a file landed whose bytes were loaded before.

    Raises:
        As LedgerIndex.opened.
    """
    with LedgerIndex.opened(session) as index:
        return index.repeats(session.log(source.table).refresh().uuid)


def newest_entries(session: DuckDBSession, source: Source, limit: int) -> list[LedgerEntry]:
    """Return the newest entries of a source's table, newest first.

    Raises:
        As LedgerIndex.opened.
    """
    with LedgerIndex.opened(session) as index:
        return index.latest_entries(session.log(source.table).refresh().uuid, limit)


def loaded_before(session: DuckDBSession, source: Source, new: Sequence[LedgerEntry]) -> set[str]:
    """Return the paths of those of the loaded files whose content has another entry LOADED: its rows are there twice.

    Raises:
        As LedgerIndex.opened.
    """
    with LedgerIndex.opened(session) as index:
        entries = index.entries_of_contents(session.log(source.table).refresh().uuid, [entry.sha256 for entry in new])
    loads = Counter(entry.sha256 for entry in still_loaded(entries))
    return {entry.path for entry in new if loads[entry.sha256] > 1}


def still_loaded(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries LOADED that no later entry withdrew: of each content as many as were loaded more than withdrawn."""
    withdrawn = Counter(entry.sha256 for entry in entries if entry.status is Status.WITHDRAWN)
    loaded = list[LedgerEntry]()
    for entry in sorted(entries, key=lambda entry: entry.version):
        if entry.status is Status.LOADED and withdrawn[entry.sha256]:
            withdrawn[entry.sha256] -= 1
        elif entry.status is Status.LOADED:
            loaded.append(entry)
    return loaded


def appended_entries(read: Callable[[str, list[object]], list[tuple[Any, ...]]], table_id: str) -> list[LedgerEntry]:
    """Return a bronze table's entries among the rows that `read` gives.

    Args:
        read: Runs a query, in which `{rows}` stands for rows of the ledger, with its parameters.
        table_id: The table's.
    """
    return [entry_of(row) for row in read(f"SELECT {LEDGER_COLUMNS} FROM {{rows}} WHERE table_id = ?", [table_id])]


def totals(session: DuckDBSession) -> dict[Status, Total]:
    """Return the sums over the whole ledger, for each status."""
    with LedgerIndex.opened(session) as index:
        return dict.fromkeys(Status, Total()) | {Status(status): Total(*numbers) for status, *numbers in index.totals()}
