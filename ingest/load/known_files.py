"""What to do with a file whose bytes or name were loaded before: it is repeated, recovered or rewritten."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ingest.file_source import Rewrite, Source
from ingest.ledger.file_ledger import FileOutcome, LedgerEntry, Status
from ingest.ledger.ledger_queries import loaded_entries
from ingest.ledger.ledger_writes import withdraw
from resources.duckdb.duckdb_engine import ALIAS, DuckDBSession
from resources.duckdb.group_commit import Staged
from resources.duckdb.row_replacement import replace_rows
from resources.errors import AlreadyLoaded


def load_ids(source: Source, outcome: FileOutcome) -> tuple[str, ...]:
    """Return the load ids that the commit of a file's rows writes."""
    if source.on_rewrite is Rewrite.APPEND:
        return (outcome.content_load,)
    return outcome.content_load, outcome.path_load


@dataclass(frozen=True)
class KnownFiles:
    """Settles the files of a batch that were loaded before.

    Attributes:
        staged: Gives the rows of one file as a pending append.
    """

    session: DuckDBSession
    source: Source
    staged: Callable[[FileOutcome], Staged]

    def settle(self, outcomes: Sequence[FileOutcome], loaded: set[str]) -> list[FileOutcome]:
        """Settle the outcomes that have one of their load ids in `loaded`; return all, in their order."""
        known = [outcome for outcome in outcomes if outcome.fresh and loaded.intersection(load_ids(self.source, outcome))]
        entries = self.entries(known)
        settled = {outcome.path: self._settled(outcome, loaded, entries) for outcome in known}
        return [settled.get(outcome.path, outcome) for outcome in outcomes]

    def entries(self, files: Sequence[FileOutcome]) -> list[LedgerEntry]:
        """Return the ledger's loaded entries for the names and the bytes of files."""
        if not files:
            return []
        paths, contents = [file.path for file in files], [file.sha256 for file in files]
        return loaded_entries(self.session, self.source.table_name, paths, contents)

    def _settled(self, outcome: FileOutcome, loaded: set[str], entries: Sequence[LedgerEntry]) -> FileOutcome:
        of_path = [entry for entry in entries if entry.path == outcome.path]
        if outcome.content_load not in loaded and self.source.on_rewrite is Rewrite.REPLACE:
            return self._replaced(outcome, of_path)
        if outcome.content_load not in loaded:
            reason = "this name was loaded before with other content; land a correction under a new name"
            return replace(outcome, status=Status.QUARANTINED, rows=0, rescued=0, reason=reason)
        if not any(entry.sha256 == outcome.sha256 for entry in of_path) and (
            batch := self._recovered_batch(outcome, loaded, of_path)
        ):
            return replace(outcome, recovered=True, batch_id=batch)
        return replace(outcome, status=Status.REPEATED, rows=0, rescued=0, reason="its bytes were loaded before")

    def _replaced(self, outcome: FileOutcome, of_path: Sequence[LedgerEntry]) -> FileOutcome:
        """Replace the rows of the file's earlier content with its present rows."""
        began = time.monotonic()
        staged = replace(self.staged(outcome), loads=(outcome.content_load,))
        old = [entry for entry in of_path if entry.sha256 != outcome.sha256]
        try:
            replacement = replace_rows(
                self.session.con,
                self.session.log(self.source.table),
                staged,
                "_source_file",
                outcome.path,
                withdrawn=[entry.content_load for entry in old],
                reloaded=[outcome.path_load],
            )
        except AlreadyLoaded:
            # An earlier attempt committed this and died before it wrote the ledger entry.
            replacement = None
        version = replacement.version if replacement else None
        withdraw(self.session, self.source.table_name, old, version, "other content was landed under its name")
        if replacement is None:
            return replace(outcome, recovered=True)
        seconds = round(outcome.seconds + time.monotonic() - began, 4)
        return replace(
            outcome, replaced=replacement.removed, version=version, attempts=replacement.attempts, seconds=seconds
        )

    def _recovered_batch(self, outcome: FileOutcome, loaded: set[str], of_path: Sequence[LedgerEntry]) -> str | None:
        """The batch of an earlier attempt that committed the file's rows and died before it wrote the ledger entry; None
        where the bytes were loaded under another name."""
        table = f"{ALIAS}.{self.source.table_name}"
        query = f"SELECT count(*), arg_max(_batch_id, _loaded_at) FROM {table} WHERE _source_file = ?"
        rows, batch = self.session.rows(query, [outcome.path])[0]
        if self.source.on_rewrite is Rewrite.APPEND:
            recovered = 0 < outcome.rows <= rows - sum(entry.rows for entry in of_path)
        else:
            recovered = outcome.path_load in loaded
        return (batch or outcome.batch_id) if recovered else None
