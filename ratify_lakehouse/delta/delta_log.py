"""The log of a catalog-managed Delta table: how a writer reads it, and how it commits.

A commit takes three steps (Delta's PROTOCOL.md, catalog-managed tables). Its actions are written to a staged commit, a file
with a unique name in `_delta_log/_staged_commits`. The catalog is asked to ratify that file as the next version. The file is
then published as `_delta_log/<version>.json`. The catalog alone decides. If a reply is lost, the request is sent again, and
the catalog recognizes the file. If another writer commits the version first, this writer reads that version and stages
another small file; its data files stay as they are. Nothing that a commit names is deleted unless the commit is refused
(`ratify_lakehouse.delta.commit_outcome`).

A writer needs little state (see `Snapshot`), and updates it by reading only the new versions.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Never, cast
from urllib.parse import urlsplit
from uuid import uuid4

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.commit_actions import Committed, NothingToCommit, Proposal, actions_of, catalog_update
from ratify_lakehouse.delta.commit_outcome import Winner, outcome
from ratify_lakehouse.delta.log_checkpoints import LOG, checkpoint_actions, newest_checkpoint, replayed_actions
from ratify_lakehouse.delta.snapshot import STATE_ACTIONS, Json, LiveFile, Snapshot, SnapshotState, apply_to_files
from ratify_lakehouse.delta.table_features import supported
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    LogUnreadable,
    RatifyError,
    StorageUnavailable,
    UnsafeTable,
)

logger = logging.getLogger(__name__)

STAGED = f"{LOG}/_staged_commits"
_MAX_DOUBLINGS = 3
_CAREFUL_COMMITS = 8


class DeltaLog:
    """The log of one table, for one thread at a time."""

    def __init__(self, catalog: UnityCatalog, full_name: str, attempts: int, patience: float) -> None:
        """
        Args:
            catalog: The catalog that ratifies.
            full_name: The table, `catalog.schema.table`.
            attempts: How often a commit is proposed in all, if other writers commit first.
            patience: Seconds for which a commit request without an answer is sent again.
        """
        self._catalog = catalog
        self._full_name = full_name
        self._attempts = attempts
        self._patience = patience
        self._loaded: Json | None = None
        self._state = SnapshotState()
        self._uuid: str = ""
        self._storage: TableStorage | None = None
        self._commit_s = 0.02
        self._careful = 0
        self._lost = 0

    @property
    def contended(self) -> bool:
        """Whether this writer lost one of its last few commits to another."""
        return self._careful > 0

    @property
    def version(self) -> int:
        """The latest version that this log has seen; -1 before the first look."""
        return self._state.version

    @property
    def last(self) -> Snapshot | None:
        """The snapshot after the last look or commit; None if the next one needs a look."""
        return self._snapshot(self._loaded) if self._loaded else None

    def latest_version(self) -> int:
        """Return the latest version that the catalog has ratified, without reading the log.

        Raises:
            TableMissing, CatalogUnavailable, CatalogDenied.
        """
        return self._catalog.version(self._full_name)

    @property
    def storage(self) -> TableStorage:
        """The table's files."""
        if self._storage is None:
            self.refresh()
        return cast("TableStorage", self._storage)

    def refresh(self) -> Snapshot:
        """Ask the catalog for the latest version and read the new part of the log.

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
            # Versions that a checkpoint covers may have been cleaned up.
            self._state = SnapshotState()
            with self._readable():
                self._catch_up(loaded)
        self._loaded = loaded
        snapshot = self._snapshot(loaded)
        self._state.forget(snapshot.retained_seconds)
        return snapshot

    def files(self, snapshot: Snapshot) -> list[LiveFile]:
        """Return the data files of the snapshot that this log returned last.

        Raises:
            StorageUnavailable, LogUnreadable.
            UnsafeTable: it names files outside of its folder, as clones do.
        """
        live = dict[tuple[str, str], LiveFile]()
        with self._readable():
            for action, version in replayed_actions(self.storage, self.actions, snapshot.version, ("add",)):
                apply_to_files(live, action, version)
        if outside := next((path for path, _ in live if path.startswith("/") or urlsplit(path).scheme), None):
            raise UnsafeTable(
                f"{self._full_name} names a file outside of its folder, {outside}: read and write it with Spark."
            )
        return list(live.values())

    def actions(self, version: int) -> list[Json]:
        """Return the actions of one ratified version, no newer than the last that this log has seen.

        Raises:
            FileNotFoundError: the log no longer has that version.
            StorageUnavailable.
        """
        return self._read_commit(version, self._loaded)

    def commit(self, plan: Callable[[Snapshot], Proposal], *, partitioned: bool = False) -> Committed:
        """Commit what `plan` proposes for the latest version. `plan` runs again for each version that others commit first.

        A plan may run again after it raised, too: what it keeps between two calls are whole results alone.

        `partitioned`: the plan gives its files the values of their partition.

        Raises:
            UnsafeTable: the table has a feature that is not supported here, or is append-only and the plan removes files; or
                the plan moves rows, and adds another number of them than it removes.
            CommitConflict: others won every attempt; nothing was committed.
            CatalogBusy, CatalogDenied, CatalogRejected, TableMissing: the catalog refused it; nothing was committed.
            CommitOutcomeUnknown: it may have been ratified, or may be yet; the files that it names stay in place.
            Whatever `plan` raises.
        """
        retrying = Retrying(
            retry=retry_if_result(lambda version: version is None),
            stop=stop_after_attempt(self._attempts),
            retry_error_callback=self._refuse,
        )
        self._lost = 0
        version = cast("int", retrying(self._attempt, plan, partitioned))
        return Committed(version, retrying.statistics["attempt_number"])

    def _attempt(self, plan: Callable[[Snapshot], Proposal], partitioned: bool) -> int | None:
        """Propose the next version once; None if another writer has it."""
        snapshot, proposal = self._planned(plan, partitioned)
        began = time.monotonic()
        version = self._propose(snapshot, proposal)
        self._careful = _CAREFUL_COMMITS if version is None else max(0, self._careful - 1)
        if version is not None:
            self._commit_s = 0.8 * self._commit_s + 0.2 * (time.monotonic() - began)
            self._state.forget(snapshot.retained_seconds)
        return version

    def _wait_for_others(self) -> None:
        # From the time that a commit takes here: the others need as long to make theirs. No longer than a few of them,
        # because then the writer that has just committed would be the first again, and again.
        self._lost = min(self._lost + 1, _MAX_DOUBLINGS)
        time.sleep(random.uniform(0, self._commit_s * 2**self._lost))  # noqa: S311

    def _refuse(self, state: RetryCallState) -> Never:
        self._loaded = None
        raise CommitConflict(
            f"Other writers of {self._full_name} won all {state.attempt_number} attempts; nothing was committed."
        )

    def _planned(self, plan: Callable[[Snapshot], Proposal], partitioned: bool) -> tuple[Snapshot, Proposal]:
        # The snapshot after our last commit is good enough: if it is out of date, the catalog refuses the next commit.
        # With other writers around, it mostly is out of date, unless it was read to see who has won.
        if not self._loaded or (self.contended and not self._lost):
            snapshot = self.refresh()
            return snapshot, supported(snapshot, plan, partitioned)
        known = self._snapshot(self._loaded)
        try:
            return known, supported(known, plan, partitioned)
        except (RatifyError, NothingToCommit):
            # A refusal may be of a version that is out of date. If it is the latest, the refusal stands.
            snapshot = self.refresh()
            if (snapshot.uuid, snapshot.version) == (known.uuid, known.version):
                raise
        return snapshot, supported(snapshot, plan, partitioned)

    def _propose(self, snapshot: Snapshot, proposal: Proposal) -> int | None:
        """Stage a commit and ask the catalog to ratify it; None if another writer has that version."""
        version, txn_id = snapshot.version + 1, str(uuid4())
        actions = actions_of(proposal, snapshot, txn_id, self._catalog.known_principal)
        name = f"{version:020d}.{uuid4()}.json"
        content = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
        self.storage.write(f"{STAGED}/{name}", content)
        requirements, updates = catalog_update(proposal, snapshot, name, len(content), actions[0]["commitInfo"]["timestamp"])
        unknown = (
            f"It is unknown whether version {version} of {self._full_name} was committed, so its files stay. Try again: "
            "its load id keeps it from being written twice."
        )
        self._loaded = None
        try:
            answer = outcome(
                lambda: self._catalog.update_table(self._full_name, requirements, updates),
                name,
                lambda: self._winner(snapshot, txn_id),
                self._patience,
                unknown,
            )
        except CommitOutcomeUnknown:
            raise
        except RatifyError as error:
            self.storage.discard([f"{STAGED}/{name}"])
            if isinstance(error, CommitConflict):
                return None
            raise
        if answer is None:
            # The log that showed it was read up to that version, or further.
            return version
        self._state.version = version
        for action in actions:
            self._state.apply(action)
        self._loaded = answer if answer.get("latest-table-version") == version else None
        try:
            self._publish([{"version": version, "file-name": name}])
        except StorageUnavailable as error:
            # It is ratified; the next writer that reads the table publishes it.
            logger.warning("version %d of %s is not published yet: %s", version, self._full_name, error)
            self._loaded = None
        return version

    def _winner(self, before: Snapshot, txn_id: str) -> Winner:
        """Whose commit the version after a snapshot is. The log is read once for this and for the next attempt."""
        self._wait_for_others()
        now, version = self.refresh(), before.version + 1
        if now.uuid != before.uuid:
            return Winner.ANOTHER
        if now.version < version:
            return Winner.NOBODY
        won = self._state.txn_ids.get(version)
        if won is None:
            # The log was read from a checkpoint after it.
            (won, *_) = [a["commitInfo"].get("txnId") for a in self.actions(version) if "commitInfo" in a] or [""]
        return Winner.OURS if won == txn_id else Winner.ANOTHER

    def _publish(self, commits: Iterable[Mapping[str, Any]]) -> None:
        """Make ratified commits readable to clients that do not ask the catalog.

        A failure must be raised, because our next commit lets the catalog forget them.
        """
        for commit in sorted(commits, key=lambda commit: commit["version"]):
            self.storage.copy(f"{STAGED}/{commit['file-name']}", f"{LOG}/{commit['version']:020d}.json")

    def _catch_up(self, loaded: Json) -> None:
        latest = int(loaded["latest-table-version"])
        unpublished: list[Json] = loaded.get("commits") or []
        if self._state.version < 0:
            self._read_checkpoint(latest)
        # Their writers may have died before they published them.
        self._publish(unpublished)
        for version in range(self._state.version + 1, latest + 1):
            actions = self._read_commit(version, loaded)
            self._state.version = version
            for action in actions:
                self._state.apply(action)

    def _read_commit(self, version: int, loaded: Json | None) -> list[Json]:
        unpublished: list[Json] = (loaded or {}).get("commits") or []
        staged = {commit["version"]: f"{STAGED}/{commit['file-name']}" for commit in unpublished}
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
        """Load the state from the newest checkpoint."""
        version, paths = newest_checkpoint(self.storage, latest)
        for path in paths:
            for action in checkpoint_actions(self.storage, path, STATE_ACTIONS):
                self._state.apply(action)
        # A checkpoint has no commitInfo: without a later version, the in-commit timestamp is in the version's own commit.
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
