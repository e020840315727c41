"""What a commit changes, and the actions of Delta's log that express it (PROTOCOL.md, "Actions")."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from ratify_lakehouse.delta.commit_author import authored_by, current_run_id
from ratify_lakehouse.delta.snapshot import ROW_TRACKING, DataFile, Json, LiveFile, Snapshot
from ratify_lakehouse.distribution import distribution_version

OUR_WRITER = "Ratify/"
"""What `engineInfo` has of commits that are made here."""

_LOAD_DETAILS = "loadDetails"


@dataclass(frozen=True)
class Proposal:
    """What a commit changes.

    Attributes:
        adds: Files whose rows are added.
        removes: Files of the snapshot whose rows are removed.
        txns: Delta `txn` app ids, each with its new version.
        operation: As DESCRIBE HISTORY shows it.
        parameters: Likewise.
        metrics: For DESCRIBE HISTORY, in addition to those derived from the files, or in place of them.
        metadata: For a schema change, the new `metaData` action and the `updates` that notify the catalog of it.
        further: Actions beside `metadata`, `protocol` and `domainMetadata`, of which its `updates` notify the catalog.
        load_details: What the commit records of its loads, one JSON object each: see `load_details_of`.
        record: What the commit's user metadata has beside its author, a JSON object. Such a commit was computed from the
            snapshot, and so is no blind append even if it only adds files.
        purpose: How the commit's user metadata begins.
        change_files: Files of the change data feed: where a commit has some, its readers take nothing else of it.
        data_change: False where the added files have the rows of the removed ones: streams and change feeds skip it.
        counted: Then, rows of removed files by the files' keys, as counted in the files: not every writer stores the number.
    """

    adds: Sequence[DataFile] = ()
    removes: Sequence[LiveFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict[str, int])
    operation: str = "WRITE"
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    metadata: tuple[Json, Sequence[Json]] | None = None
    further: Sequence[Json] = ()
    load_details: Sequence[Json] = ()
    record: str = ""
    purpose: str = "ratify"
    change_files: Sequence[DataFile] = ()
    data_change: bool = True
    counted: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


@dataclass(frozen=True)
class Committed:
    """A ratified version, and the number of attempts that it took."""

    version: int
    attempts: int


class NothingToCommit(Exception):
    """Raised by a plan: the table already is in the wanted state."""


def actions_of(proposal: Proposal, snapshot: Snapshot, txn_id: str, principal: str | None = None) -> list[Json]:
    """Return the actions of the commit that follows a snapshot; the first is its `commitInfo`, with the principal if known.

    Timestamps are milliseconds since 1970, and grow from version to version (PROTOCOL.md, "In-Commit Timestamps").
    """
    now = max(int(time.time() * 1000), snapshot.state.in_commit_timestamp + 1)
    version, row_ids = snapshot.version + 1, snapshot.state.row_ids
    tracked = "delta.feature.rowTracking" in snapshot.properties
    keeps_ids = snapshot.properties.get("delta.enableRowTracking") == "true" and not proposal.data_change
    info: Json = {
        "timestamp": now,
        "inCommitTimestamp": now,
        "operation": proposal.operation,
        "operationParameters": proposal.parameters,
        "readVersion": snapshot.version,
        "isolationLevel": "Serializable" if proposal.data_change else "SnapshotIsolation",
        "isBlindAppend": not (proposal.removes or proposal.metadata or proposal.record),
        "operationMetrics": {name: str(value) for name, value in _metrics(proposal).items()},
        "engineInfo": engine_info(),
        "txnId": txn_id,
        **({"userMetadata": f"{proposal.purpose} {author}"} if (author := _author(proposal, principal)) else {}),
        **({_LOAD_DETAILS: list(proposal.load_details)} if proposal.load_details else {}),
        # PROTOCOL.md, "Writer Requirements for Row Tracking": the files of such a proposal have the ids of their rows.
        **({"tags": {"delta.rowTracking.preserved": "true"}} if keeps_ids else {}),
    }
    actions: list[Json] = [{"commitInfo": info}]
    if proposal.metadata:
        actions.append({"metaData": proposal.metadata[0]})
    actions += proposal.further
    actions += [{"txn": {"appId": id_, "version": v, "lastUpdated": now}} for id_, v in proposal.txns.items()]
    actions += [_remove(file, now, proposal.data_change) for file in proposal.removes]
    for file in proposal.adds:
        add: Json = {
            "path": file.path,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
            "modificationTime": now,
            "dataChange": proposal.data_change,
            "stats": json.dumps(file.stats, separators=(",", ":")),
        }
        if tracked:
            add |= {"baseRowId": row_ids + 1, "defaultRowCommitVersion": version}
            row_ids += file.rows
        actions.append({"add": add})
    for file in proposal.change_files:
        values = dict(file.partition_values)
        actions.append({"cdc": {"path": file.path, "partitionValues": values, "size": file.size, "dataChange": False}})
    if tracked and proposal.adds:
        mark = json.dumps({"rowIdHighWaterMark": row_ids})
        actions.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}})
    return actions


def _author(proposal: Proposal, principal: str | None) -> str:
    """The user metadata; empty if there is nothing to say."""
    if proposal.record:
        # One without a record may be proposed by a writer that commits for others.
        return authored_by(principal, current_run_id(), proposal.record)
    return authored_by(principal) if principal else ""


def load_details_of(actions: Sequence[Json]) -> list[Json]:
    """Return what a commit recorded of its loads, given its actions; none if another writer made it.

    The details are in the `commitInfo`, which may hold any JSON (PROTOCOL.md, "Commit Provenance Information"): they are
    ratified together with the rows, and no checkpoint carries them along.
    """
    return [details for action in actions for details in action.get("commitInfo", {}).get(_LOAD_DETAILS, [])]


def catalog_update(
    proposal: Proposal, snapshot: Snapshot, name: str, size: int, timestamp: int
) -> tuple[list[Json], list[Json]]:
    """Return the `requirements` and `updates` by which the catalog is asked to ratify a staged commit.

    Args:
        proposal: What the commit changes.
        snapshot: The version that it follows.
        name: Name of the file in `_delta_log/_staged_commits`.
        size: Bytes of that file.
        timestamp: The commit's time, milliseconds since 1970.
    """
    commit = {
        "version": snapshot.version + 1,
        "timestamp": timestamp,
        "file-name": name,
        "file-size": size,
        "file-modification-timestamp": timestamp,
    }
    updates: list[Json] = [{"action": "add-commit", "commit": commit}]
    if snapshot.version > 0:
        updates.append({"action": "set-latest-backfilled-version", "latest-published-version": snapshot.version})
    updates.extend(proposal.metadata[1] if proposal.metadata else ())
    return [{"type": "assert-table-uuid", "uuid": snapshot.uuid}], updates


def _metrics(proposal: Proposal) -> dict[str, int]:
    if not proposal.data_change:
        return dict(proposal.metrics)
    return {
        "numFiles": len(proposal.adds),
        "numOutputRows": sum(file.rows for file in proposal.adds),
        "numOutputBytes": sum(file.size for file in proposal.adds),
        **({"numRemovedFiles": len(proposal.removes)} if proposal.removes else {}),
        **proposal.metrics,
    }


def _remove(file: LiveFile, now: int, data_change: bool) -> Json:
    copied = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    values = {name: file.add[name] for name in copied if file.add.get(name) is not None}
    return {"remove": {**values, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}}


@cache
def engine_info() -> str:
    """Return what commits of this package name as their engine."""
    from importlib.metadata import version

    return f"DuckDB/{version('duckdb')} {OUR_WRITER}{distribution_version()}"
