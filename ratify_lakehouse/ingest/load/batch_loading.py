"""Loads batches of landed files into bronze, each file exactly once, one commit for the whole batch.

A file is identified by its bytes. The ledger knows what became of every file (`ratify_lakehouse.ingest.ledger`), and so what
is to be done with each (`file_commits`). Another writer may be faster: the commit that adds a file's rows therefore compares
and sets two Delta `txn` app ids, one for its content and one for its path. So the same bytes are never loaded twice, under
whatever name or by however many writers at once. App ids expire, so that a commit costs the same after a million files.
"""

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import ReadBeforeErasure
from ratify_lakehouse.ingest.file_source import LandedCopy, Source
from ratify_lakehouse.ingest.formats.parse_file import Load
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.load.erased_subjects import erased_rows
from ratify_lakehouse.ingest.load.file_batches import batch_id
from ratify_lakehouse.ingest.load.file_commits import FileCommits, not_loaded
from ratify_lakehouse.ingest.load.parsed_batch import ParsedBatch
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.scratch_folders import scratch_folder

_SOON_S = 1.0
_READINGS = 5


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a load batch.

    Attributes:
        version: Of its commit; None where nothing was new.
        dropped: Rows of erased subjects, which its files have and the table does not.
    """

    batch_id: str
    files: tuple[FileOutcome, ...]
    version: int | None
    dropped: int = 0

    def count(self, status: Status) -> int:
        """Return how many of the files ended with this status."""
        return sum(file.status is status for file in self.files)

    @property
    def versions(self) -> list[int]:
        """The versions that it committed: one, and one more for each file whose rows replaced others."""
        return sorted({file.version for file in self.files if file.version is not None})

    @property
    def added(self) -> int:
        """Rows that it added to bronze, less those that it replaced."""
        return sum(file.rows - file.replaced for file in self.files if not file.recovered)

    @property
    def rows(self) -> int:
        """Rows of the batch's files in bronze, also those that an earlier attempt committed."""
        return sum(file.rows for file in self.files)


def load_batch(
    duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile], *, more_follow: bool = False
) -> BatchOutcome:
    """Load a batch of landed files: their rows into bronze in one commit, their outcomes into the ledger.

    It may be run again after any failure: what was committed is found in the table's log and left out.

    Args:
        more_follow: Whether more batches follow, and `copy_commits` after the last one. Where several machines write, and a
            batch is read in less than a second, the entries of loaded files are written for several versions together.

    Raises:
        LandingUnavailable: a file cannot be read.
        NotConfigured: rows of erased subjects could not be distinguished; see `erased_rows`.
        CommitConflict, CatalogUnavailable, CatalogDenied, UnsafeTable, CommitOutcomeUnknown: see DuckDBSession.append.
    """
    retrying = Retrying(retry=retry_if_exception_type(ReadBeforeErasure), stop=stop_after_attempt(_READINGS), reraise=True)
    return retrying(_load_batch, duckdb, landing, source, files, more_follow=more_follow)


def _load_batch(
    duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile], *, more_follow: bool
) -> BatchOutcome:
    began, now = time.monotonic(), dt.datetime.now(dt.UTC)
    load = Load(now, batch_id(source, files))
    with scratch_folder(duckdb.home) as folder, duckdb.session() as session:
        log, name = session.log(source.table), source.table.full_name(duckdb.catalog.connection.name)
        # Before the list of erased subjects is read.
        session.fences.note(name, log)
        erased = erased_rows(session, source.table)
        batch = ParsedBatch(session, landing, source, load, folder, erased, session.fences.of(name))
        parsed = batch.parse(files)
        ledger = FileLedger(session, log, source.table_name, latest=False)
        # After the files were read: what an erasure writes is in the ledger before it is in a file.
        contents = ledger.landed_contents(
            [(file.path, file.sha256) for file in parsed], latest=source.landed is LandedCopy.REWRITE
        )
        parsed = [replace(file, sha256=content.sha256) for file, content in zip(parsed, contents, strict=True)]
        soon = more_follow and time.monotonic() - began < _SOON_S
        commits = FileCommits(session, source, ledger, batch.staged, batch.columns_changed, more_follow=soon)
        commits.commit(parsed)
        outcomes = tuple(commits.settled[file.path] for file in parsed)
        others = not_loaded(outcomes)
        if others or not commits.copies_later:
            ledger.record(others, source.digest)
    return BatchOutcome(load.batch_id, outcomes, commits.version, batch.dropped)
