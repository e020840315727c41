"""Rows that stand for others: those of a file that was landed again with other content take the place of the first ones."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from resources.column_types import type_of_delta
from resources.delta.commit_actions import Proposal
from resources.delta.delta_log import DeltaLog
from resources.delta.load_ids import as_loaded, as_withdrawn, withdrawn_ids
from resources.delta.snapshot import DataFile, LiveFile, Snapshot
from resources.delta.table_repair import refuse_removes
from resources.duckdb.group_commit import Staged
from resources.duckdb.parquet_files import write_parquet
from resources.duckdb.pending_append import PendingAppend
from resources.errors import NOTHING_COMMITTED, CommitConflict, UnsafeTable
from resources.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Replaced:
    """A ratified replacement: its version, the rows that came and those that went, and how often the commit was tried."""

    version: int
    rows: int
    gone: int
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

    Files that hold such rows are written again without them. Rows that only move get new row ids, as row tracking keeps
    stable ones only in columns of their own in the data files, which DuckDB does not write.

    Args:
        con: A session's connection, whose time zone is UTC.
        log: The table's log.
        staged: The new rows, with the loads that bring them, which the table must not hold yet.
        column: A string column.
        value: What it is in the rows that go.
        withdrawn: Loads whose rows these are. From then on they are not in the table, and can be loaded again.
        reloaded: Loads that are in the table, before and after, with other rows.

    Raises:
        AlreadyLoaded: the table holds one of the staged loads; nothing was committed.
        UnsafeTable: the table forbids to remove rows, keeps a change data feed, or has deleted rows in a touched file.
        CommitConflict: another writer has withdrawn one of `withdrawn` already, or won every attempt; nothing was committed.
        What `DuckDBSession.append` raises.
    """
    replacement = _Replacement(con, log, staged, column, value, withdrawn, reloaded)
    try:
        committed = log.commit(replacement.proposal)
    except NOTHING_COMMITTED:
        # After any other error, a ratified commit may name the files.
        replacement.withdraw()
        raise
    replacement.withdraw(but=replacement.proposed)
    return Replaced(committed.version, staged.rows, replacement.gone, committed.attempts)


@dataclass(frozen=True)
class _Rest:
    """What is left of a file: how many rows go, and the file of those that stay, if any do."""

    gone: int
    kept: DataFile | None = None


class _Replacement:
    """Each file is read and written again once, however often the commit is tried."""

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
        self.gone = 0

    def proposal(self, snapshot: Snapshot) -> Proposal:
        """What to commit on top of a snapshot."""
        # First, for whoever repeats a replacement is to hear that it was made.
        appended = self._pending.proposal(snapshot)
        versions = snapshot.txn_versions([*self._withdrawn, *self._reloaded])
        # One that the log does not know, or has forgotten, may well have been in.
        if taken := sorted(withdrawn_ids(versions).intersection(self._withdrawn)):
            raise CommitConflict(
                f"{snapshot.full_name} no longer holds load {', '.join(taken)}, whose rows were to be replaced: another "
                "writer has done so. Look which rows are there now, and call again."
            )
        if self._table != snapshot.uuid:
            self._table, self._rests = snapshot.uuid, {}
        touched = [(file, rest) for file in self._candidates(snapshot) if (rest := self._rest(snapshot, file)).gone]
        if touched:
            refuse_removes(snapshot, [file for file, _ in touched])
        kept = [rest.kept for _, rest in touched if rest.kept]
        self.gone = sum(rest.gone for _, rest in touched)
        self.proposed = [*appended.adds, *kept]
        return replace(
            appended,
            adds=self.proposed,
            removes=[file for file, _ in touched],
            txns={**appended.txns, **as_withdrawn(versions, self._withdrawn), **as_loaded(versions, self._reloaded)},
            parameters={"mode": "Overwrite", "partitionBy": "[]", "predicate": self._condition("=")},
            # As Spark's INSERT … REPLACE WHERE counts them.
            metrics={
                "numOutputRows": sum(file.rows for file in appended.adds),
                "numDeletedRows": self.gone,
                "numCopiedRows": sum(file.rows for file in kept),
            },
        )

    def withdraw(self, but: Sequence[DataFile] = ()) -> None:
        """Take the files away again that no commit names."""
        if not but:
            self._pending.withdraw()
        for rest in self._rests.values():
            if rest.kept and rest.kept not in but:
                self._log.storage.remove(rest.kept.path)

    def _candidates(self, snapshot: Snapshot) -> list[LiveFile]:
        """Files that may hold such rows, by their statistics: bounds may be wider than what they bound, never narrower."""

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
        there = {name.lower() for name, *_ in self._con.execute(f"DESCRIBE FROM {source}").fetchall()}
        if self._column.lower() not in there:
            return _Rest(0)
        counts = self._con.execute(f"SELECT count(*) FILTER ({self._condition('=')}), count(*) FROM {source}").fetchall()
        gone, total = counts[0]
        if gone and file.has_deletion_vector:
            raise UnsafeTable(
                f"{snapshot.full_name} has deleted rows in {file.path}, which holds rows that are to be replaced, and only "
                f"Spark rewrites such a file: run DELETE FROM {snapshot.full_name} WHERE {self._condition('=')} in Spark, "
                "and append the new rows."
            )
        if gone in (0, total):
            return _Rest(gone)
        # By the table's types: engines have several ways to keep the same values in Parquet.
        kept = {field["name"]: type_of_delta(field["type"]) for field in snapshot.fields if field["name"].lower() in there}
        typed = ", ".join(f"CAST({identifier(name)} AS {type_.sql}) AS {identifier(name)}" for name, type_ in kept.items())
        with tempfile.TemporaryDirectory(prefix="ratify-") as folder:
            rewritten = Path(folder) / "kept.parquet"
            rest = f"SELECT {typed} FROM {source} WHERE {self._condition('IS DISTINCT FROM')}"
            written = write_parquet(self._con, rest, rewritten)
            path = f"duckdb-{uuid4()}.parquet"
            self._log.storage.put(rewritten, path)
        return _Rest(gone, DataFile(path, written.rows, written.size, written.stats))

    def _condition(self, operator: str) -> str:
        return f"{identifier(self._column)} {operator} {literal(self._value)}"
