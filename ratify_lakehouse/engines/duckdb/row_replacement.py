"""Replacement of rows: the rows of a file that landed again with other content replace those of its first content."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.column_types import type_of_delta
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.load_ids import as_loaded, as_withdrawn, withdrawn_ids
from ratify_lakehouse.delta.snapshot import DataFile, LiveFile, Snapshot
from ratify_lakehouse.delta.table_repair import refuse_removes
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.parquet_files import put_data_file, write_parquet
from ratify_lakehouse.engines.duckdb.pending_append import PendingAppend
from ratify_lakehouse.errors import NOTHING_COMMITTED, LoadsWithdrawn, UnsafeTable
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Replaced:
    """A ratified replacement: its version, the numbers of rows added and removed, and the number of attempts."""

    version: int
    rows: int
    removed: int
    attempts: int


def replace_rows(
    con: "DuckDBPyConnection",
    log: DeltaLog,
    staged: Staged,
    column: str,
    value: str,
    *,
    withdrawn: Sequence[str] = (),
    reloaded: Sequence[str] = (),
) -> Replaced:
    """In one version, remove the rows whose `column` is `value` and append the staged ones.

    Files with such rows are rewritten without them. Rows that only move get new row ids: row tracking keeps stable ids in
    extra columns of the data files, which DuckDB does not write.

    Args:
        con: A session's connection, whose time zone is UTC.
        log: The table's log.
        staged: The new rows, with the loads that bring them, which the table must not hold yet.
        column: A string column.
        value: Its value in the rows to remove.
        withdrawn: Loads of the removed rows. They are marked as withdrawn, and can be loaded again.
        reloaded: Loads that are in the table before and after, with other rows.

    Raises:
        AlreadyLoaded: the table holds one of the staged loads; nothing was committed.
        UnsafeTable: the table is append-only, has a change data feed, or has deleted rows in an affected file.
        LoadsWithdrawn: another writer has withdrawn one of `withdrawn` already.
        CommitConflict: other writers won every attempt; nothing was committed.
        Whatever `DuckDBSession.append` raises.
    """
    replacement = _Replacement(con, log, staged, column, value, withdrawn, reloaded)
    try:
        committed = log.commit(replacement.proposal)
    except NOTHING_COMMITTED:
        # After any other error, a ratified commit may name the files.
        replacement.withdraw()
        raise
    replacement.withdraw(except_for=replacement.proposed)
    return Replaced(committed.version, staged.rows, replacement.removed, committed.attempts)


@dataclass(frozen=True)
class _Rest:
    """What remains of a file: the number of removed rows, and a new file with the other rows, if there are any."""

    removed: int
    rewritten: DataFile | None = None


class _Replacement:
    """Each file is rewritten once, however often the commit is tried."""

    def __init__(
        self,
        con: "DuckDBPyConnection",
        log: DeltaLog,
        staged: Staged,
        column: str,
        value: str,
        withdrawn: Sequence[str],
        reloaded: Sequence[str],
    ) -> None:
        self._con = con
        self._log = log
        self._pending = PendingAppend(con, log, [staged], exclusive=True)
        self._column = column
        self._value = value
        self._withdrawn = withdrawn
        self._reloaded = reloaded
        self._table = ""
        self._rests = dict[tuple[str, str], _Rest]()
        self.proposed: Sequence[DataFile] = ()
        self.removed = 0

    def proposal(self, snapshot: Snapshot) -> Proposal:
        """Return the proposal for the version after a snapshot."""
        # First, so that a repeated replacement raises AlreadyLoaded.
        appended = self._pending.proposal(snapshot)
        versions = snapshot.txn_versions([*self._withdrawn, *self._reloaded])
        # A load that the log does not know, or has forgotten, may well have been in the table.
        if withdrawn := sorted(withdrawn_ids(versions).intersection(self._withdrawn)):
            raise LoadsWithdrawn(
                f"{snapshot.full_name} no longer holds load {', '.join(withdrawn)}, whose rows were to be replaced: "
                "another writer has done so. Check which rows the table has now, and try again."
            )
        if self._table != snapshot.uuid:
            self._table, self._rests = snapshot.uuid, {}
        affected = [(file, rest) for file in self._candidates(snapshot) if (rest := self._rest(snapshot, file)).removed]
        if affected:
            refuse_removes(snapshot, [file for file, _ in affected])
        rewritten = [rest.rewritten for _, rest in affected if rest.rewritten]
        self.removed = sum(rest.removed for _, rest in affected)
        self.proposed = [*appended.adds, *rewritten]
        return replace(
            appended,
            adds=self.proposed,
            removes=[file for file, _ in affected],
            txns={**appended.txns, **as_withdrawn(versions, self._withdrawn), **as_loaded(versions, self._reloaded)},
            parameters={"mode": "Overwrite", "partitionBy": "[]", "predicate": self._condition("=")},
            # As Spark's INSERT … REPLACE WHERE counts them.
            metrics={
                "numOutputRows": sum(file.rows for file in appended.adds),
                "numDeletedRows": self.removed,
                "numCopiedRows": sum(file.rows for file in rewritten),
            },
        )

    def withdraw(self, except_for: Sequence[DataFile] = ()) -> None:
        """Delete the files that no commit names."""
        if not except_for:
            self._pending.withdraw()
        rewritten = [rest.rewritten for rest in self._rests.values() if rest.rewritten]
        self._log.storage.discard(file.path for file in rewritten if file not in except_for)

    def _candidates(self, snapshot: Snapshot) -> list[LiveFile]:
        """Files that may have such rows, by their statistics: bounds may be wider than the values, never narrower."""

        def may_hold(file: LiveFile) -> bool:
            least: str = file.stats.get("minValues", {}).get(self._column, "")
            most: str | None = file.stats.get("maxValues", {}).get(self._column)
            return least <= self._value and (most is None or self._value <= most)

        return [file for file in self._log.files(snapshot) if may_hold(file)]

    def _rest(self, snapshot: Snapshot, file: LiveFile) -> _Rest:
        if file.key not in self._rests:
            try:
                with self._log.storage.downloaded(file.path) as local:
                    self._rests[file.key] = self._split(snapshot, file, local)
            except FileNotFoundError as error:
                raise UnsafeTable(
                    f"{snapshot.full_name} names {file.path}, which is not in its storage: run `ratify repair` first."
                ) from error
        return self._rests[file.key]

    def _split(self, snapshot: Snapshot, file: LiveFile, local: Path) -> _Rest:
        source = f"read_parquet({literal(str(local))})"
        columns = {name.lower() for name, *_ in self._con.execute(f"DESCRIBE FROM {source}").fetchall()}
        if self._column.lower() not in columns:
            return _Rest(0)
        counts = self._con.execute(f"SELECT count(*) FILTER ({self._condition('=')}), count(*) FROM {source}").fetchall()
        removed, total = counts[0]
        if removed and file.has_deletion_vector:
            raise UnsafeTable(
                f"{snapshot.full_name} has deleted rows in {file.path}, which has rows to be replaced, and only "
                f"Spark rewrites such a file: run DELETE FROM {snapshot.full_name} WHERE {self._condition('=')} in Spark, "
                "and append the new rows."
            )
        if removed in (0, total):
            return _Rest(removed)
        # By the table's types: engines store the same values in Parquet in several ways.
        types = {
            field["name"]: type_of_delta(field["type"]) for field in snapshot.fields if field["name"].lower() in columns
        }
        typed = ", ".join(f"CAST({identifier(name)} AS {type_.sql}) AS {identifier(name)}" for name, type_ in types.items())
        with tempfile.TemporaryDirectory(prefix="ratify-") as folder:
            target = Path(folder) / "rest.parquet"
            rest = f"SELECT {typed} FROM {source} WHERE {self._condition('IS DISTINCT FROM')}"
            written = write_parquet(self._con, rest, target)
            return _Rest(removed, put_data_file(self._log.storage, target, written))

    def _condition(self, operator: str) -> str:
        return f"{identifier(self._column)} {operator} {literal(self._value)}"
