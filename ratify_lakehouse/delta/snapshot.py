"""A table at one version, as far as a writer needs it: columns, properties, files and load ids."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ratify_lakehouse.column_types import SqlType, type_of_delta

Json = dict[str, Any]

RETENTION = "delta.setTransactionRetentionDuration"
"""Table property: how long app ids are kept, as `interval 30 days`."""

ROW_TRACKING = "delta.rowTracking"
"""The domain of `domainMetadata` that has the highest row id."""

CLUSTERING = "delta.clustering"
"""The domain that has the columns by which a table is clustered."""

STATE_ACTIONS = ("txn", "domainMetadata", "metaData", "protocol")
"""The actions that `SnapshotState` is made of, apart from `commitInfo`."""

_RECENT = 1000
_INTERVAL = re.compile(r"^\s*(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?\s*$", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        path: Relative to the table's location.
        rows: How many.
        size: Bytes.
        stats: Delta's statistics: numRecords, nullCount, minValues, maxValues.
        partition_values: Of a partitioned table, as its log has them.
    """

    path: str
    rows: int
    size: int
    stats: Json
    partition_values: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot.

    Attributes:
        add: The `add` action of the log.
        version: The commit that wrote the file, or None if the log no longer has it.
    """

    add: Json
    version: int | None

    @property
    def path(self) -> str:
        """Path relative to the table's location; the log's own paths are URL-encoded."""
        return unquote(self.add["path"])

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the file within a snapshot (PROTOCOL.md, action reconciliation)."""
        return file_key(self.add)

    @property
    def has_deletion_vector(self) -> bool:
        """Whether some of its rows are deleted."""
        return bool(self.key[1])

    @property
    def stats(self) -> Json:
        """Delta's statistics; empty if its writer stored none."""
        return json.loads(self.add.get("stats") or "{}")

    @property
    def rows(self) -> int | None:
        """Rows that are not deleted, or None if its writer did not store the number."""
        count = self.stats.get("numRecords")
        vector: Json | None = self.add.get("deletionVector")
        return None if count is None else count - ((vector or {}).get("cardinality") or 0)


@dataclass
class SnapshotState:
    """The state that the log describes up to a version."""

    version: int = -1
    in_commit_timestamp: int = 0
    row_ids: int = -1
    txns: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    metadata: Json = field(default_factory=dict[str, Any])
    protocol: Json = field(default_factory=dict[str, Any])
    cluster_by: tuple[str, ...] = ()
    txn_ids: dict[int, str] = field(default_factory=dict[int, str])
    forget_at: int = 1000

    def apply(self, action: Json) -> None:
        """Apply one action of a later version."""
        if txn := action.get("txn"):
            self.txns[txn["appId"]] = (txn["version"], max(txn.get("lastUpdated") or 0, self.in_commit_timestamp))
        elif domain := action.get("domainMetadata"):
            if domain["domain"] == ROW_TRACKING:
                self.row_ids = int(json.loads(domain["configuration"])["rowIdHighWaterMark"])
            elif domain["domain"] == CLUSTERING:
                configuration: Json = {} if domain["removed"] else json.loads(domain["configuration"])
                paths: list[list[str]] = configuration.get("clusteringColumns", [])
                self.cluster_by = tuple(".".join(path) for path in paths)
        elif metadata := action.get("metaData"):
            self.metadata = metadata
        elif protocol := action.get("protocol"):
            self.protocol = protocol
        elif info := action.get("commitInfo"):
            self.in_commit_timestamp = committed_ms(info)
            self.txn_ids[self.version] = info.get("txnId") or ""
            if len(self.txn_ids) > _RECENT:
                del self.txn_ids[next(iter(self.txn_ids))]

    def forget(self, retained_seconds: int) -> None:
        """Drop the app ids that have expired, once they may be half of all. Time is that of the log, whose timestamps grow
        from version to version: by a machine's clock, an id of a moment ago could have expired."""
        if retained_seconds and len(self.txns) > self.forget_at:
            horizon_ms = self.in_commit_timestamp - retained_seconds * 1000
            self.txns = {app_id: txn for app_id, txn in self.txns.items() if txn[1] >= horizon_ms}
            self.forget_at = 2 * len(self.txns) + _RECENT


@dataclass(frozen=True)
class Snapshot:
    """A table at one version, as far as a writer needs it.

    Attributes:
        version: The latest ratified one.
        fields: Columns, as Delta's schema has them (name, type, nullable, metadata).
        properties: Table properties, with those that the catalog derives.
        state: The state that the log describes up to that version.
    """

    full_name: str
    version: int
    uuid: str
    location: str
    fields: Sequence[Json]
    properties: Mapping[str, str]
    partition_columns: Sequence[str]
    state: SnapshotState

    def txn_versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """The versions of those app ids that the log knows; it may have forgotten those that have expired."""
        known = ((app_id, self.state.txns.get(app_id)) for app_id in app_ids)
        return {app_id: txn[0] for app_id, txn in known if txn}

    @property
    def column_types(self) -> dict[str, SqlType]:
        """Types of the columns, in table order."""
        return {field["name"]: type_of_delta(field["type"]) for field in self.fields}

    @property
    def retained_seconds(self) -> int:
        """How long app ids are kept; 0 if none ever expires."""
        return retention_seconds(self.properties.get(RETENTION, ""))

    @property
    def metadata(self) -> Json:
        """The current `metaData` action."""
        return self.state.metadata


def committed_ms(info: Mapping[str, Any]) -> int:
    """Return when a version was committed, milliseconds since 1970, by its `commitInfo`; 0 if that does not say it."""
    return info.get("inCommitTimestamp") or info.get("timestamp") or 0


def committed_at(actions: Iterable[Json]) -> float:
    """Return when a version was committed, milliseconds since 1970; of one whose time nobody knows it is not over yet."""
    for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
        return committed_ms(info) or float("inf")
    return float("inf")


def retention_seconds(interval: str) -> int:
    """Return the seconds of an interval as RETENTION has it; 0 where it is none."""
    match = _INTERVAL.match(interval)
    return int(match[1]) * _SECONDS[match[2].lower()] if match else 0


def file_key(action: Json) -> tuple[str, str]:
    """Return what identifies the file of an `add` or `remove` within a snapshot (PROTOCOL.md, action reconciliation)."""
    vector: Json | None = action.get("deletionVector")
    if not vector:
        return action["path"], ""
    at = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{at}"


def apply_to_files(live: dict[tuple[str, str], LiveFile], action: Json, version: int | None) -> None:
    """Apply one action of a commit, or of a checkpoint (version None), to the files of the version before, by their keys."""
    if add := action.get("add"):
        # Each new deletion vector adds the same file again.
        live[file_key(add)] = LiveFile(add, add.get("defaultRowCommitVersion", version))
    elif remove := action.get("remove"):
        live.pop(file_key(remove), None)
