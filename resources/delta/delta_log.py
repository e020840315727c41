"""The log of a catalog-managed Delta table: what a writer must know of it, and how it commits.

A commit takes three steps (Delta's PROTOCOL.md, catalog-managed tables): its actions are written to a file of a name that
no other has, in `_delta_log/_staged_commits`; the catalog is asked to make that file the next version; and the file is
published as `_delta_log/<version>.json`. The catalog alone decides. A reply that is lost is asked for again, and the catalog
knows the file again; a version that somebody else made first costs a look at that version and another small file, for the
data files stay as they are. Nothing that a commit names is deleted unless the catalog has refused the commit.

The state that a writer needs is small (see `Snapshot`), and is kept up to date by reading only the versions that are new.
"""

import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

from resources.catalog.unity_catalog import UnityCatalog
from resources.column_types import delta_field, sql_type, type_of_delta
from resources.declarations import Column
from resources.delta.log_checkpoints import LOG, SIDECARS, checkpoint_actions, newest_checkpoint
from resources.delta.snapshot import ROW_TRACKING, DataFile, Json, LiveFile, Snapshot, SnapshotState, file_key
from resources.delta.table_features import refuse_unheeded
from resources.delta.table_storage import TableStorage
from resources.errors import (
    CatalogBusy,
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    LogUnreadable,
    RatifyError,
    StorageUnavailable,
    UnsafeTable,
)

logger = logging.getLogger(__name__)

_STAGED = f"{LOG}/_staged_commits"
_MAX_DOUBLINGS = 3
_CAREFUL_COMMITS = 8
_RESEND_S = 0.2
_LOOK_BACK = 100
_AWAIT_S = 0.05


@dataclass(frozen=True)
class Proposal:
    """What a commit is to bring.

    Attributes:
        adds: Files whose rows come in.
        removes: Files of the snapshot whose rows go.
        txns: Delta app ids with the version that each gets.
        operation: As DESCRIBE HISTORY shows it.
        parameters: Likewise.
        metrics: Of DESCRIBE HISTORY, beside or in place of those that the files tell.
        metadata: A new `metaData` action and the `updates` by which the catalog hears of it, where the schema changes.
    """

    adds: Sequence[DataFile] = ()
    removes: Sequence[LiveFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict[str, int])
    operation: str = "WRITE"
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    metadata: tuple[Json, Sequence[Json]] | None = None


@dataclass(frozen=True)
class Committed:
    """A ratified version, and how often it was tried."""

    version: int
    attempts: int


class NothingToCommit(Exception):
    """Raised by a plan: the table already is as it is to be."""


def columns_added(snapshot: Snapshot, columns: Sequence[Column]) -> Proposal:
    """Return what adds those columns that a table lacks, after its own.

    Raises:
        UnsafeTable: it has one of them, with another type.
        NothingToCommit: it has all of them.
    """
    there = {field["name"].lower(): type_of_delta(field["type"]) for field in snapshot.fields}
    for column in columns:
        if there.get(column.name.lower(), wanted := sql_type(column.type)) != wanted:
            found = there[column.name.lower()]
            raise UnsafeTable(
                f"{snapshot.full_name}, column {column.name}: it is {found.spark}, and {wanted.spark} is to be added."
            )
    new = [column for column in columns if column.name.lower() not in there]
    if not new:
        raise NothingToCommit
    schema = json.loads(snapshot.metadata["schemaString"])
    schema["fields"] += [delta_field(column.name, sql_type(column.type)) for column in new]
    for_catalog = [*snapshot.fields, *(_with_dashes(delta_field(column.name, sql_type(column.type))) for column in new)]
    return Proposal(
        operation="ADD COLUMNS",
        parameters={"columns": json.dumps([{"column": {"name": column.name, "type": column.type}} for column in new])},
        metadata=(
            {**snapshot.metadata, "schemaString": json.dumps(schema)},
            [{"action": "set-columns", "columns": {"type": "struct", "fields": for_catalog}}],
        ),
    )


def _with_dashes(part: Any) -> Any:
    """A part of Delta's schema as the catalog's API has it: `element-type` where the log has `elementType`."""
    if isinstance(part, list):
        return [_with_dashes(inner) for inner in cast("list[Any]", part)]
    if isinstance(part, dict):
        named = cast("dict[str, Any]", part)
        return {re.sub(r"([A-Z])", lambda c: "-" + c[1].lower(), key): _with_dashes(inner) for key, inner in named.items()}
    return part


class DeltaLog:
    """The log of one table, for one thread at a time."""

    def __init__(self, catalog: UnityCatalog, full_name: str, attempts: int, patience: float) -> None:
        """
        Args:
            catalog: The catalog that ratifies.
            full_name: The table, `catalog.schema.table`.
            attempts: How often a commit that met another is made again.
            patience: Seconds for which a commit that is not answered is sent again.
        """
        self._catalog = catalog
        self._full_name = full_name
        self._attempts = attempts
        self._patience = patience
        self._loaded: Json | None = None
        self._state = SnapshotState()
        self._uuid = ""
        self._storage: TableStorage | None = None
        self._commit_s = 0.02
        self._careful = 0

    @property
    def contended(self) -> bool:
        """Whether others have lately been faster."""
        return self._careful > 0

    @property
    def storage(self) -> TableStorage:
        """The table's files."""
        if self._storage is None:
            self.refresh()
        return cast("TableStorage", self._storage)

    def refresh(self) -> Snapshot:
        """Ask the catalog for the latest version and read what is new of the log.

        Raises:
            TableMissing, CatalogUnavailable, CatalogDenied, StorageUnavailable, LogUnreadable.
            UnsafeTable: it is not a managed table.
        """
        loaded = self._catalog.load_table(self._full_name)
        metadata = loaded["metadata"]
        if "latest-table-version" not in loaded:
            raise UnsafeTable(
                f"{self._full_name} is not a managed table, whose commits are the catalog's: use Spark for it."
            )
        if metadata["table-uuid"] != self._uuid or loaded["latest-table-version"] < self._state.version:
            self._uuid, self._state = metadata["table-uuid"], SnapshotState()
            self._storage = TableStorage(metadata["location"], lambda: self._catalog.table_credentials(self._full_name))
        try:
            self._catch_up(loaded)
        except FileNotFoundError:
            # Versions that a checkpoint holds may be cleaned away.
            self._state = SnapshotState()
            with self._readable():
                self._catch_up(loaded)
        self._loaded = loaded
        snapshot = self._snapshot(loaded)
        self._state.forget(snapshot.horizon_ms)
        return snapshot

    def files(self, snapshot: Snapshot) -> list[LiveFile]:
        """Return the data files that make up the table at the snapshot that this log gave last.

        Raises:
            StorageUnavailable, LogUnreadable.
            UnsafeTable: it names files outside of its folder, as clones do.
        """
        live = dict[tuple[str, str], LiveFile]()

        def apply(action: Json, version: int | None) -> None:
            if add := action.get("add"):
                # With deletion vectors the same file is added again and again.
                live[file_key(add)] = LiveFile(add, add.get("defaultRowCommitVersion", version))
            elif remove := action.get("remove"):
                live.pop(file_key(remove), None)

        with self._readable():
            summed_up, paths = newest_checkpoint(self.storage, snapshot.version)
            while paths:
                for action in checkpoint_actions(self.storage, paths.pop(), ("add", "sidecar")):
                    apply(action, None)
                    if sidecar := action.get("sidecar"):
                        paths.append(f"{SIDECARS}/{sidecar['path'].rsplit('/', 1)[-1]}")
            for version in range(summed_up + 1, snapshot.version + 1):
                for action in self.actions(version):
                    apply(action, version)
        if outside := next((path for path, _ in live if path.startswith("/") or urlsplit(path).scheme), None):
            raise UnsafeTable(
                f"{self._full_name} names a file outside of its folder, {outside}: read and write it with Spark."
            )
        return list(live.values())

    def actions(self, version: int) -> list[Json]:
        """Return the actions of one ratified version, up to the last that was seen.

        Raises:
            FileNotFoundError: the log no longer has it.
            StorageUnavailable.
        """
        return self._read_commit(version, self._loaded)

    def commit(self, plan: Callable[[Snapshot], Proposal]) -> Committed:
        """Commit what `plan` proposes for the latest version; it is asked again for each version that others make first.

        Raises:
            UnsafeTable: the table asks its writers for what this one does not know, or is append-only and rows are to go.
            CommitConflict: others won every attempt; nothing was committed.
            CatalogBusy: likewise, and the catalog takes no more.
            CommitOutcomeUnknown: the catalog stopped answering; what the commit names is left in place.
            What `plan` raises.
        """
        for attempt in range(1, self._attempts + 1):
            snapshot, proposal = self._planned(plan)
            began = time.monotonic()
            version = self._propose(snapshot, proposal)
            self._careful = _CAREFUL_COMMITS if version is None else max(0, self._careful - 1)
            if version is not None:
                self._commit_s = 0.8 * self._commit_s + 0.2 * (time.monotonic() - began)
                self._state.forget(snapshot.horizon_ms)
                return Committed(version, attempt)
            # Full jitter, from the time that a commit takes here: the others need as long to make theirs. No longer than a
            # few of them, for then whoever has just committed would be the first again, and again.
            time.sleep(random.uniform(0, self._commit_s * 2 ** min(attempt, _MAX_DOUBLINGS)))  # noqa: S311
        self._loaded = None
        raise CommitConflict(f"Other writers of {self._full_name} won all {self._attempts} attempts; nothing was committed.")

    def loser(self, after: int) -> int:
        """Return the newest version, of the last few and above `after`, that another writer proposed and lost; -1 if none.

        Its proposal stays in the log when the catalog refuses it, as ours does not: so such a version has two.
        """
        version = self._state.version
        # Of a hundred versions all digits but two are alike.
        alike = {f"{max(0, seen):020d}"[:-2] for seen in (version, version - _LOOK_BACK)}
        proposed = Counter(name[:20] for digits in alike for name in self.storage.names(_STAGED, digits))
        lost = (seen for seen in range(version, max(after, version - _LOOK_BACK), -1) if proposed[f"{seen:020d}"] > 1)
        return next(lost, -1)

    def await_other(self, seconds: float) -> bool:
        """Wait until there is a version that another writer made after our last; return whether one came in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._catalog.version(self._full_name) > self._state.version:
                return True
            time.sleep(_AWAIT_S)
        return False

    def _planned(self, plan: Callable[[Snapshot], Proposal]) -> tuple[Snapshot, Proposal]:
        # The snapshot that our last commit left will do: if it is out of date, then the catalog refuses what builds on it.
        # Only what is refused here has to be looked at again; and where others commit too, it mostly is out of date.
        if self._loaded and not self.contended:
            with suppress(RatifyError):
                snapshot = self._snapshot(self._loaded)
                return snapshot, _heeding(snapshot, plan)
        snapshot = self.refresh()
        return snapshot, _heeding(snapshot, plan)

    def _propose(self, snapshot: Snapshot, proposal: Proposal) -> int | None:
        """Ask for the next version; None where another writer has it."""
        version, txn_id = snapshot.version + 1, str(uuid4())
        actions = self._actions(snapshot, proposal, txn_id)
        name = f"{version:020d}.{uuid4()}.json"
        content = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
        self.storage.write(f"{_STAGED}/{name}", content)
        ratified = self._ask(snapshot, proposal, name, len(content), actions[0]["commitInfo"]["timestamp"])
        if ratified is None:
            self._loaded = None
            # Also the client below us sends requests again, and the catalog remembers only so many commits: whether this one
            # was accepted and its answer lost, the log itself tells.
            if made := self._made(version, txn_id):
                return made
            self.storage.remove(f"{_STAGED}/{name}")
            return None
        self._state.version = version
        for action in actions:
            self._state.apply(action)
        self._loaded = ratified if ratified.get("latest-table-version") == version else None
        try:
            self._publish([{"version": version, "file-name": name}])
        except StorageUnavailable as error:
            # It is ratified; whoever looks at the table next, and be it we, publishes it.
            logger.warning("version %d of %s is not published yet: %s", version, self._full_name, error)
            self._loaded = None
        return version

    def _made(self, version: int, txn_id: str) -> int | None:
        try:
            self.refresh()
        except RatifyError as error:
            raise self._unknown(version) from error
        return self._state.ids.get(txn_id)

    def _unknown(self, version: int) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"The catalog stopped answering while version {version} of {self._full_name} was being committed. Start it "
            "again and repeat the load: its id tells whether it was ratified, so it cannot be written twice."
        )

    def _ask(self, snapshot: Snapshot, proposal: Proposal, name: str, size: int, timestamp: int) -> Json | None:
        """The catalog's answer; None where the version is taken, perhaps by an earlier request of ours."""
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
        requirements = [{"type": "assert-table-uuid", "uuid": snapshot.uuid}]
        deadline, uncertain = time.monotonic() + self._patience, False
        while True:
            try:
                return self._catalog.update_table(self._full_name, requirements, updates)
            except CommitConflict:
                return None
            except RatifyError as error:
                # A refusal says nothing of the requests before it that were not answered.
                uncertain = uncertain or isinstance(error, CatalogUnavailable)
                passing = isinstance(error, CatalogUnavailable | CatalogBusy)
                if not passing or time.monotonic() > deadline:
                    if not uncertain:
                        raise
                    raise self._unknown(snapshot.version + 1) from error
                logger.warning("asking again: %s", error)
            time.sleep(_RESEND_S * (0.5 + random.random()))  # noqa: S311

    def _actions(self, snapshot: Snapshot, proposal: Proposal, txn_id: str) -> list[Json]:
        now = max(int(time.time() * 1000), self._state.in_commit_timestamp + 1)
        version, row_ids = snapshot.version + 1, self._state.row_ids
        tracked = "delta.feature.rowTracking" in snapshot.properties
        info: Json = {
            "timestamp": now,
            "inCommitTimestamp": now,
            "operation": proposal.operation,
            "operationParameters": proposal.parameters,
            "readVersion": snapshot.version,
            "isolationLevel": "Serializable",
            "isBlindAppend": not (proposal.removes or proposal.metadata),
            "operationMetrics": {
                "numFiles": str(len(proposal.adds)),
                "numOutputRows": str(sum(file.rows for file in proposal.adds)),
                "numOutputBytes": str(sum(file.size for file in proposal.adds)),
                **({"numRemovedFiles": str(len(proposal.removes))} if proposal.removes else {}),
                **{name: str(value) for name, value in proposal.metrics.items()},
            },
            "engineInfo": _engine_info(),
            "txnId": txn_id,
        }
        actions: list[Json] = [{"commitInfo": info}]
        if proposal.metadata:
            actions.append({"metaData": proposal.metadata[0]})
        actions += [{"txn": {"appId": id_, "version": v, "lastUpdated": now}} for id_, v in proposal.txns.items()]
        actions += [_remove(file, now) for file in proposal.removes]
        for file in proposal.adds:
            add: Json = {
                "path": file.path,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": json.dumps(file.stats, separators=(",", ":")),
            }
            if tracked:
                add |= {"baseRowId": row_ids + 1, "defaultRowCommitVersion": version}
                row_ids += file.rows
            actions.append({"add": add})
        if tracked and proposal.adds:
            mark = json.dumps({"rowIdHighWaterMark": row_ids})
            actions.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}})
        return actions

    def _publish(self, commits: Iterable[Mapping[str, Any]]) -> None:
        """Make ratified commits readable to those who do not ask the catalog.

        It must not fail unseen, for our next commit lets the catalog forget them.
        """
        for commit in sorted(commits, key=lambda commit: commit["version"]):
            self.storage.copy(f"{_STAGED}/{commit['file-name']}", f"{LOG}/{commit['version']:020d}.json")

    def _catch_up(self, loaded: Json) -> None:
        latest = int(loaded["latest-table-version"])
        unpublished: list[Json] = loaded.get("commits") or []
        if self._state.version < 0:
            self._read_checkpoint(latest)
        # Their writers may have died before they did it.
        self._publish(unpublished)
        for version in range(self._state.version + 1, latest + 1):
            actions = self._read_commit(version, loaded)
            self._state.version = version
            for action in actions:
                self._state.apply(action)

    def _read_commit(self, version: int, loaded: Json | None) -> list[Json]:
        unpublished: list[Json] = (loaded or {}).get("commits") or []
        staged = {commit["version"]: f"{_STAGED}/{commit['file-name']}" for commit in unpublished}
        content = self.storage.read(staged.get(version, f"{LOG}/{version:020d}.json"))
        return [json.loads(line) for line in content.splitlines()]

    @contextmanager
    def _readable(self) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise LogUnreadable(
                f"The log of {self._full_name} lacks {error.filename or error}: RESTORE the table to a version that can "
                "be read, or bring the file back."
            ) from error

    def _read_checkpoint(self, latest: int) -> None:
        """Begin with the newest checkpoint."""
        version, paths = newest_checkpoint(self.storage, latest)
        for path in paths:
            for action in checkpoint_actions(self.storage, path, ("txn", "domainMetadata", "metaData")):
                self._state.apply(action)
        # A checkpoint has no commitInfo: if none comes after it, the time of its version is in the version itself.
        self._state.version = version if version < latest else version - 1

    def _snapshot(self, loaded: Json) -> Snapshot:
        metadata = loaded["metadata"]
        return Snapshot(
            full_name=self._full_name,
            version=self._state.version,
            uuid=metadata["table-uuid"],
            location=metadata["location"],
            fields=metadata["columns"]["fields"],
            properties=metadata["properties"],
            partition_columns=metadata.get("partition-columns") or [],
            state=self._state,
        )


def _heeding(snapshot: Snapshot, plan: Callable[[Snapshot], Proposal]) -> Proposal:
    """What is planned for a snapshot, unless its table asks for what this writer does not know, or forbids it."""
    refuse_unheeded(snapshot)
    proposal = plan(snapshot)
    if proposal.removes and snapshot.properties.get("delta.appendOnly", "").lower() == "true":
        raise UnsafeTable(
            f"{snapshot.full_name} only allows appends: run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES "
            "('delta.appendOnly' = 'false') in Spark if rows are to be replaced or taken out."
        )
    return proposal


def _remove(file: LiveFile, now: int) -> Json:
    kept = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    said = {name: file.add[name] for name in kept if file.add.get(name) is not None}
    return {"remove": {**said, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}}


@cache
def _engine_info() -> str:
    from importlib.metadata import version

    return f"DuckDB/{version('duckdb')} Ratify/{version('ratify-lakehouse')}"
