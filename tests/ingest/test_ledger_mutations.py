"""The model finds faults: each of these was in the code once, or is one step away from it, and is put back here."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ratify_lakehouse.delta.load_ids import loaded_ids
from ratify_lakehouse.engines.duckdb import pending_append
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.ingest.file_source import Rewrite
from ratify_lakehouse.ingest.ledger import file_states, ledger_access
from ratify_lakehouse.ingest.ledger.committed_files import CommittedFiles, committed_files
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.file_load_ids import content_load
from ratify_lakehouse.ingest.ledger.file_states import FileStep, HeldContents, next_step
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.ledger.ledger_index import LedgerIndex
from ratify_lakehouse.ingest.load import file_commits
from ratify_lakehouse.ingest.load.file_commits import FileCommits
from tests.ingest.test_ledger_model import LedgerMachine, machine, run

__all__ = ["machine"]

pytestmark = [pytest.mark.server, pytest.mark.long]

_settles, _held, _missing = file_states._settles, LedgerIndex.held, FileLedger._missing
_entry, _same = ledger_access._entry, ledger_access._same


def _only_what_the_log_knows(self: FileLedger, paths: Iterable[str], sha256s: Iterable[str]) -> HeldContents:
    with LedgerIndex.opened(self._session) as index:
        entries = index.held(self.table_id, paths, sha256s)
    txns = self._log.refresh().txn_versions([content_load(entry.sha256) for entry in entries])
    self._held_at = self._log.version
    return HeldContents(entry for entry in entries if content_load(entry.sha256) in loaded_ids(txns))


def _entries_of_the_index_alone(self: FileLedger, paths: Iterable[str], sha256s: Iterable[str]) -> HeldContents:
    self._held_at = self._log.version
    with LedgerIndex.opened(self._session) as index:
        return HeldContents(index.held(self.table_id, paths, sha256s))


def _repeated_or_known_settles(policy: Rewrite, declaration: str, entry: LedgerEntry, held: HeldContents) -> bool:
    return entry.status in (Status.REPEATED, Status.LOADED) or _settles(policy, declaration, entry, held)


def _refused_settles(policy: Rewrite, declaration: str, entry: LedgerEntry, held: HeldContents) -> bool:
    return entry.status is Status.REFUSED or _settles(policy, declaration, entry, held)


def _conflict_settles(policy: Rewrite, declaration: str, entry: LedgerEntry, held: HeldContents) -> bool:
    refused = entry.status is Status.REFUSED and entry.declaration == declaration
    return refused or _settles(policy, declaration, entry, held)


def _repairs_withdraw_nothing(version: int, actions: Any) -> CommittedFiles | None:
    commit = committed_files(version, actions)
    return commit if commit and commit.loaded else None


def _rows_of_other_bytes_stay(policy: Rewrite, path: str, sha256: str, held: HeldContents) -> FileStep:
    step = next_step(policy, path, sha256, held)
    return FileStep.KNOWN if step is FileStep.REMOVE else step


def _of_any_table(self: LedgerIndex, _: str, paths: Iterable[str], contents: Iterable[str]) -> list[LedgerEntry]:
    tables = [table for (table,) in self._con.execute("SELECT DISTINCT table_id FROM held")]
    wanted, names = list(contents), list(paths)
    return [entry for table in tables for entry in _held(self, table, names, wanted)]


def _newest_version_alone(self: FileLedger, index: LedgerIndex) -> tuple[list[CommittedFiles], bool]:
    found, lost = _missing(self, index)
    return found[-1:], lost


def _repeated_files_land_after_their_batch(*arguments: Any) -> dict[str, Any]:
    return _entry(*arguments) | {"batch_version": arguments[2], "batch_position": None}


def _known_since_it_ever_landed(entry: LedgerEntry, outcome: FileOutcome, declaration: str) -> bool:
    return _same(entry, replace(outcome, held_since=-1), declaration)


FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the log is asked, not the ledger": (FileLedger, "held", _only_what_the_log_knows),
    "what a killed run has committed is not copied first": (FileLedger, "held", _entries_of_the_index_alone),
    "of the versions without entries, the newest is copied": (FileLedger, "_missing", _newest_version_alone),
    "repeated once, repeated for ever": (file_states, "_settles", _repeated_or_known_settles),
    "refused once, refused for ever": (file_states, "_settles", _refused_settles),
    "a conflict outlives the content it was with": (file_states, "_settles", _conflict_settles),
    "what a repair took away stays in the ledger": (ledger_access, "committed_files", _repairs_withdraw_nothing),
    "what a killed repair took away is settled": (FileLedger, "withdrawn", lambda *_: ()),
    "rows of a rewritten file stay in the table": (file_commits, "next_step", _rows_of_other_bytes_stay),
    "an append compares no loads": (pending_append, "loaded_ids", lambda _: ()),
    "a file of one table is known to all": (LedgerIndex, "held", _of_any_table),
    "repeated files land after the others of their batch": (
        ledger_access,
        "_entry",
        _repeated_files_land_after_their_batch,
    ),
    "a batch that commits several times lands several times": (FileCommits, "_committed", lambda *_: None),
    "a repeated file has no place in the batch that loads its bytes again": (
        ledger_access,
        "_same",
        _known_since_it_ever_landed,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_a_fault_that_is_put_back(
    fault: str, machine: type[LedgerMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, RatifyError)):
        run(machine, monkeypatch, 500)
