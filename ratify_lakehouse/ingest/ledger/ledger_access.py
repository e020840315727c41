"""Access to the ledger for one bronze table: what its files are, and new entries, each exactly once."""

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import AlreadyLoaded, LedgerIncomplete, LoadsWithdrawn
from ratify_lakehouse.ingest.ledger.committed_files import CommittedFiles, committed_files, held_after, ledger_rows
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, FileOutcome, LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.file_load_ids import contents, entry_load, path_load, version_load
from ratify_lakehouse.ingest.ledger.file_states import HeldContents
from ratify_lakehouse.ingest.ledger.ledger_index import LedgerIndex
from ratify_lakehouse.ingest.ledger.rewritten_contents import LandedContent, landed_content
from ratify_lakehouse.sql.duckdb_sql import rows_of

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_MANY_UNCOPIED = 20


class FileLedger:
    """The ledger of one bronze table, within one session.

    Attributes:
        uncopied: Path, fingerprint and SHA-256 of the loaded files that had no entries yet when `held` looked.
    """

    def __init__(self, session: DuckDBSession, log: DeltaLog, table_name: str, *, latest: bool = True) -> None:
        """Read the table's log.

        Args:
            session: For the ledger's rows.
            log: The bronze table's.
            table_name: Its `schema.table`.
            latest: Whether a log that was read before is read again. Who commits need not: the commit finds what is new.

        Raises:
            TableMissing: it does not exist.
            As DeltaLog.refresh.
        """
        self._session = session
        self._log = log
        self._table_name = table_name
        self.table_id = ((not latest and log.last) or log.refresh()).uuid
        self._read_to = self._held_at = self._copied_to = -1
        self.uncopied = set[tuple[str, str, str]]()

    def held(self, paths: Iterable[str], sha256s: Iterable[str]) -> HeldContents:
        """Return what the table holds of these paths and these contents, at the latest version that its log has seen.

        The entries of its latest commits need not be written yet: the commits themselves say what they did.

        Raises:
            As LedgerIndex.opened.
        """
        paths, sha256s, latest = set(paths), set(sha256s), False
        while True:
            # The ledger's latest version is asked for only if the table's log lacks what an older one lacks, or if that is
            # long ago.
            with LedgerIndex.opened(self._session, latest=latest) as index:
                commits, lost = self._missing(index)
                if latest or not (lost or len(commits) > _MANY_UNCOPIED):
                    added = [details for commit in commits for details in commit.loaded]
                    sha256s |= {details["sha256"] for details in added if details["path"] in paths}
                    before = index.held(self.table_id, paths, sha256s)
                    break
            latest = True
        self._held_at = self._log.version
        self.uncopied |= {(details["path"], details["fingerprint"], details["sha256"]) for details in added}
        return HeldContents(held_after(commits, before, lambda entry: entry.path in paths or entry.sha256 in sha256s))

    def landed_contents(self, files: Iterable[tuple[str, str]], *, latest: bool = True) -> list[LandedContent]:
        """Return what the bytes of files count as, in their order: others than their own where an erasure has made them.

        Args:
            files: The path of each, and the SHA-256 of its bytes.
            latest: Whether the ledger's latest version is asked for. Without it, a rewrite on another machine may be missed.

        Raises:
            As LedgerIndex.opened.
        """
        files = list(files)
        with LedgerIndex.opened(self._session, latest=latest) as index:
            found = index.entries_of_contents(self.table_id, [sha256 for _, sha256 in files])
            if any(entry.status is Status.REWRITTEN for entry in found):
                found += held_after(self._missing(index)[0], [], lambda _: True)
        before = [entry.conflicts_with for entry in found if entry.status is Status.REWRITTEN]
        held = {entry.sha256 for entry in self.held([], before)} if before else set[str]()
        by_content = dict[str, list[LedgerEntry]]()
        for entry in found:
            by_content.setdefault(entry.sha256, []).append(entry)
        return [landed_content(path, sha256, by_content.get(sha256, []), held) for path, sha256 in files]

    def withdrawn(self, index: LedgerIndex) -> set[str]:
        """Return the contents whose rows the table's commits removed, of which the ledger has no entries yet.

        The run that committed them was killed. A file whose rows it added has no entry at all: its next load finds them.
        """
        return {sha256 for commit in self._missing(index)[0] for sha256 in commit.withdrawn}

    def refresh(self, version: int = -1) -> None:
        """Read the table's log, unless it was read up to this version."""
        if version < 0 or self._log.version < version:
            self.table_id = self._log.refresh().uuid

    def look_again(self, refused: AlreadyLoaded, held: HeldContents) -> None:
        """See what others have committed, after the table refused loads that `held` does not have.

        Raises:
            LedgerIncomplete: nobody has committed anything that the ledger did not know.
        """
        self.refresh()
        known = {load for load in refused.loads for sha256 in contents([load]) if held.holder(sha256)}
        known |= {load for load in refused.loads if any(load == path_load(entry.path) for entry in held)}
        if self._log.version == self._held_at and not known.issuperset(refused.loads):
            raise LedgerIncomplete(
                f"{refused.table} holds loads that {LANDED_FILES.table_name} does not know, and its log no "
                f"longer says whose they are: {', '.join(refused.loads[:3])}. Restore the ledger to an earlier version, or "
                "drop the bronze table and load its files again."
            )

    def look_again_after_withdrawal(self, error: LoadsWithdrawn) -> None:
        """See what others have committed, after a replacement found that the rows were removed already.

        Raises:
            LedgerIncomplete: nobody has committed anything that the ledger did not know.
        """
        self.refresh()
        if self._log.version == self._held_at:
            raise LedgerIncomplete(
                f"{LANDED_FILES.table_name} says that {self._table_name} holds rows that were removed: "
                f"{error} RESTORE the ledger to the version before its entries were deleted."
            ) from error

    @property
    def contended(self) -> bool:
        """Whether writers on other machines commit to the table, too."""
        return self._log.contended

    def copied(self, version: int) -> None:
        """Note that the entries of all versions up to this one are written, or will be by who loads more."""
        self._copied_to = max(self._copied_to, version)

    def record(self, outcomes: Sequence[FileOutcome], declaration: str = "") -> None:
        """Write the entries of all versions of the table that its log has seen, and of files that were not loaded.

        Args:
            outcomes: Files that are repeated or refused, and bytes that are about to be written in place of others.
            declaration: Digest of the source's declaration, by which they were refused.

        Raises:
            LedgerIncomplete: entries were deleted.
            As DuckDBSession.append and DeltaLog.refresh.
        """
        # The ledger's latest version is asked for only if this one may be too old: then some of the entries are there.
        latest, before = self._log.contended, set[str]()
        while outcomes or self._log.version > self._copied_to:
            with LedgerIndex.opened(self._session, latest=latest) as index:
                commits, _ = self._missing(index)
                withdrawn = [sha256 for commit in commits for sha256 in commit.withdrawn]
                held = {entry.sha256: entry for entry in index.held(self.table_id, [], withdrawn)}
                entries = index.entries(self.table_id, [file.path for file in outcomes])
            numbers = Counter(entry.path for entry in entries)
            outcomes = [file for file in outcomes if not any(_same(entry, file, declaration) for entry in entries)]
            rows = ledger_rows(commits, held)
            now = dt.datetime.now(dt.UTC).isoformat()
            rows += [_entry(outcome, declaration, self._log.version, now) for outcome in outcomes]
            loads = [version_load(self.table_id, commit.version) for commit in commits]
            loads += [entry_load(self.table_id, outcome.path, numbers[outcome.path]) for outcome in outcomes]
            try:
                if loads:
                    self._append(rows, loads)
            except AlreadyLoaded as error:
                # Another writer has written some of them meanwhile.
                logger.info("%s", error)
                if latest and not before.isdisjoint(error.loads):
                    raise LedgerIncomplete(
                        f"Rows were deleted from {LANDED_FILES.table_name}, so it no longer knows what {self._table_name} "
                        "holds. RESTORE the ledger to the version before."
                    ) from error
                latest, before = True, set(error.loads)
            else:
                self._copied_to, outcomes = self._log.version, []

    def _missing(self, index: LedgerIndex) -> tuple[list[CommittedFiles], bool]:
        """The table's versions with files, as far as its log has seen it, that have no entries yet; in order.

        And whether the log no longer has one of them, nor what it did to files.
        """
        # Entries of a version are never written before those of all earlier ones.
        first = max(index.copied_version(self.table_id), self._read_to) + 1
        found, lost = list[CommittedFiles](), False
        for version in range(first, self._log.version + 1):
            try:
                commit = committed_files(version, self._log.actions(version))
            except FileNotFoundError:
                logger.warning("the log of %s no longer has version %d, nor what it did to files", self._table_name, version)
                lost = True
                continue
            if commit:
                found.append(commit)
            elif not found:
                self._read_to = version
        return found, lost

    def _append(self, rows: Sequence[Json], loads: Sequence[str]) -> None:
        common = {"table_name": self._table_name, "table_id": self.table_id}
        complete = ({**dict.fromkeys(LANDED_FILES.column_names), **row, **common} for row in rows)
        self._session.append(LANDED_FILES, rows_of(LANDED_FILES.column_names, complete), loads)


def copy_commits(duckdb: DuckDB, full_name: str) -> None:
    """Write the entries of a bronze table's commits that have none yet, such as those of a killed run.

    Raises:
        As FileLedger and its `record`.
    """
    with duckdb.session() as session:
        FileLedger(session, duckdb.log(full_name), full_name.partition(".")[2]).record([])


def _same(entry: LedgerEntry, outcome: FileOutcome, declaration: str) -> bool:
    """Whether an entry says of a version of a file what is to be written of it."""
    same_file = (entry.path, entry.fingerprint, entry.sha256) == (outcome.path, outcome.fingerprint, outcome.sha256)
    if outcome.status is Status.REPEATED:
        # Where its own rows are in the table, its entry LOADED says more. An entry from before the rows were removed, and
        # loaded again, says nothing of where the file is in the batch that loaded them.
        recorded = entry.status in (Status.REPEATED, Status.LOADED)
        return same_file and recorded and entry.version >= outcome.held_since
    refused = (entry.status, entry.declaration, entry.conflicts_with)
    return same_file and refused == (outcome.status, declaration, outcome.conflicts_with)


def _entry(outcome: FileOutcome, declaration: str, version: int, now: str) -> Json:
    """The ledger's row of a file that was not loaded, as of a version of its table."""
    return {
        "path": outcome.path,
        "fingerprint": outcome.fingerprint,
        "sha256": outcome.sha256,
        "bytes": outcome.size,
        "status": outcome.status.value,
        "rows": outcome.rows,
        "rescued": 0,
        "reason": outcome.reason,
        "repeated_of": outcome.repeated_of,
        "conflicts_with": outcome.conflicts_with,
        "declaration": declaration,
        "batch_id": outcome.batch_id,
        "version": version,
        "seconds": outcome.seconds,
        "landed_at": outcome.landed_at and outcome.landed_at.isoformat(),
        "batch_version": version if outcome.batch_version is None else outcome.batch_version,
        "batch_position": None if outcome.batch_version is None else outcome.batch_position,
        "recorded_at": now,
    }
