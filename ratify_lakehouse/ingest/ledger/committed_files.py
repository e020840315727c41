"""What a commit of a bronze table records of its files, and the ledger's entries that follow from the commits."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.delta.commit_actions import load_details_of
from ratify_lakehouse.delta.load_ids import loaded_ids, withdrawn_ids
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.file_load_ids import contents

Json = dict[str, Any]

_DETAILS = (
    "path",
    "fingerprint",
    "sha256",
    "bytes",
    "rows",
    "rescued",
    "batch_id",
    "seconds",
    "landed_at",
    "batch_version",
    "batch_position",
)


@dataclass(frozen=True)
class CommittedFiles:
    """What one version of a bronze table did to files.

    Attributes:
        loaded: The files whose rows it added: their values of the ledger's columns.
        withdrawn: SHA-256 of the contents whose rows it removed.
        reason: Why it removed them.
        at: When it was committed (UTC).
    """

    version: int
    loaded: Sequence[Json]
    withdrawn: Sequence[str]
    reason: str
    at: dt.datetime


def details_of(outcome: FileOutcome) -> Json:
    """Return what the commit of a file's rows records of it."""
    values = {**vars(outcome), "bytes": outcome.size, "landed_at": outcome.landed_at and outcome.landed_at.isoformat()}
    return {name: values[name] for name in _DETAILS}


def committed_files(version: int, actions: Sequence[Json]) -> CommittedFiles | None:
    """Return what a version of a bronze table did to files, given its actions; None if it did nothing to any."""
    info: Json = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    txns = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
    brought = set(contents(loaded_ids(txns)))
    loaded = [details for details in load_details_of(actions) if details["sha256"] in brought]
    withdrawn = sorted(contents(withdrawn_ids(txns)))
    if not loaded and not withdrawn:
        return None
    lost = info.get("operation") == "FSCK"
    reason = "a file of the table was lost; load it again" if lost else "other content was landed under its name"
    at = dt.datetime.fromtimestamp((info.get("inCommitTimestamp") or info.get("timestamp") or 0) / 1000, dt.UTC)
    return CommittedFiles(version, loaded, withdrawn, reason, at)


def ledger_rows(commits: Sequence[CommittedFiles], held: Mapping[str, LedgerEntry]) -> list[Json]:
    """Return the ledger's rows for commits, in the order of their versions.

    Args:
        commits: Consecutive ones, in order.
        held: By SHA-256: what the table held before the first of them, of the contents that they withdraw.
    """
    present = {sha256: _held_values(entry) for sha256, entry in held.items()}
    rows = list[Json]()
    for commit in commits:
        common = {"version": commit.version, "recorded_at": commit.at.isoformat()}
        for sha256 in commit.withdrawn:
            # A load id of a content that nobody holds: a repair has withdrawn it before.
            if values := present.pop(sha256, None):
                rows.append({**values, **common, "status": Status.WITHDRAWN.value, "reason": commit.reason})
        for details in commit.loaded:
            present[details["sha256"]] = details
            # The first commit of a batch does not know its own version yet.
            first = details.get("batch_version") or commit.version
            rows.append({**details, **common, "batch_version": first, "status": Status.LOADED.value})
    return rows


def held_after(
    commits: Sequence[CommittedFiles], before: Iterable[LedgerEntry], wanted: Callable[[LedgerEntry], bool]
) -> list[LedgerEntry]:
    """Return what a table holds after commits, given what it held before them.

    Args:
        commits: Consecutive ones, in order.
        before: The wanted ones of the entries whose rows it held.
        wanted: Says which of the commits' files to return.
    """
    held = {entry.sha256: entry for entry in before}
    for commit in commits:
        for sha256 in commit.withdrawn:
            held.pop(sha256, None)
        for details in commit.loaded:
            entry = _entry(details, commit.version)
            if wanted(entry):
                held[entry.sha256] = entry
    return list(held.values())


def _entry(details: Json, version: int) -> LedgerEntry:
    return LedgerEntry(
        path=details["path"],
        fingerprint=details["fingerprint"],
        sha256=details["sha256"],
        size=details["bytes"],
        status=Status.LOADED,
        rows=details["rows"],
        reason="",
        version=version,
        batch_id=details["batch_id"],
        conflicts_with="",
        declaration="",
    )


def _held_values(entry: LedgerEntry) -> Json:
    return {
        "path": entry.path,
        "fingerprint": entry.fingerprint,
        "sha256": entry.sha256,
        "bytes": entry.size,
        "rows": entry.rows,
        "batch_id": entry.batch_id,
    }
