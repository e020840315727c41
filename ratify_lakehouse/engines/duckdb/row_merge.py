"""Changes of rows that were computed against a version of a table, and the one commit by which DuckDB applies them.

The commit follows that version, or there is none: what was computed against it may be wrong beside what others commit. Files
with changed rows are rewritten; what a row's change is goes into the change data feed, if the table has one.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

from ratify_lakehouse.declarations import TableDeclaration, records_changes
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.compaction_bins import TARGET_BYTES
from ratify_lakehouse.delta.computed_inputs import COMPUTED
from ratify_lakehouse.delta.erasure_fence import refuse_older
from ratify_lakehouse.delta.snapshot import DataFile, Snapshot
from ratify_lakehouse.delta.table_features import refuse_unsupported_features
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.live_rows import FILE, LiveRows, live_rows
from ratify_lakehouse.engines.duckdb.parquet_files import put_data_file, write_parquet
from ratify_lakehouse.errors import NOTHING_COMMITTED, CommitConflict, UnsafeTable
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.duckdb_sql import identifier

_CHANGE_DATA, _CHANGE = "_change_data", "_change_type"


@contextmanager
def table_rows(session: DuckDBSession, declaration: TableDeclaration) -> Generator[LiveRows]:
    """Yield the rows of a table's latest version, against which changes can be computed.

    Raises:
        UnsafeTable: the table is partitioned, or has a feature that is not supported here, or a file is missing.
        As `DeltaLog.refresh` and `live_rows`.
    """
    log = session.log(declaration)
    snapshot = log.refresh()
    refuse_unsupported_features(snapshot)
    with ExitStack() as stack:
        with translating(f"read {snapshot.full_name}"):
            rows = stack.enter_context(live_rows(session.con, log.storage, snapshot, log.files(snapshot)))
        yield rows


def merge_changes(session: DuckDBSession, declaration: TableDeclaration, stored: LiveRows, changes: str, record: str) -> int:
    """Apply changed rows to a table, found by its keys, in one commit; return its version.

    Args:
        session: The session that `stored` is of.
        declaration: The table, with its keys and those of its columns that are written.
        stored: Its rows that the changes are computed against.
        changes: Query for at least one row, with a column `ratify_key_<name>` for each key; the declaration's columns;
            `ratify_present`, which is false where the row of these keys is to be deleted; and `ratify_found`, whether
            the table has that row.
        record: For the commit's user metadata, a JSON object.

    Raises:
        CommitConflict: another writer committed first; compute the changes again.
        AppendFailed: a date is infinite.
        UnsafeTable: the table is append-only.
        CommitOutcomeUnknown: it may have been ratified; compute the changes again.
    """
    with scratch_folder(session.home) as folder:
        return _Merge(_Follower(session, declaration, stored, folder), changes).commit(record)


def append(session: DuckDBSession, declaration: TableDeclaration, after: int, rows: str, inserted: int, record: str) -> int:
    """Append the rows of a query with the declaration's columns to a table, in one commit; return its version.

    Args:
        session: The session.
        declaration: The table.
        after: The version that the commit follows.
        rows: The query.
        inserted: How many rows it gives; the commit is made without any, too.
        record: As for `merge_changes`.

    Raises:
        As `merge_changes`.
    """
    log = session.log(declaration)
    snapshot = log.refresh()
    refuse_unsupported_features(snapshot)
    if snapshot.version != after:
        raise _overtaken(snapshot.full_name, after)
    with live_rows(session.con, log.storage, snapshot, ()) as stored, scratch_folder(session.home) as folder:
        follower = _Follower(session, declaration, stored, folder)
        return follower.commit(Proposal(adds=follower.rows_of(rows, inserted)), record)


def overwrite(
    session: DuckDBSession,
    declaration: TableDeclaration,
    stored: LiveRows,
    rows: str,
    inserted: int,
    record: str,
    purpose: str = "ratify",
) -> int:
    """Replace all rows of a table by those of a query with the declaration's columns, in one commit; return its version.

    Args:
        session: As for `merge_changes`.
        declaration: Likewise.
        stored: Likewise.
        rows: The query.
        inserted: How many rows it gives.
        record: As for `merge_changes`.
        purpose: See `FULL_REFRESH`.

    Raises:
        As `merge_changes`.
    """
    with scratch_folder(session.home) as folder:
        follower = _Follower(session, declaration, stored, folder)
        proposal = Proposal(
            adds=follower.rows_of(rows, inserted),
            removes=list(stored.files.values()),
            parameters={"mode": "Overwrite", "partitionBy": "[]"},
            metrics={"numDeletedRows": stored.rows},
            purpose=purpose,
        )
        return follower.commit(proposal, record)


def wrote(
    session: DuckDBSession, declaration: TableDeclaration, version: int, rows: int, counted: Mapping[str, int]
) -> WriteResult:
    """Return what a write did that has committed a version.

    Args:
        session: Has committed it.
        declaration: The table.
        version: The version.
        rows: How many rows the table has then.
        counted: See `WriteResult`.
    """
    return WriteResult(commit_from_actions(version, session.log(declaration).actions(version)), version, rows, counted)


@dataclass(frozen=True)
class _Follower:
    """Writes the files of a commit that follows the version of the stored rows, and makes it."""

    session: DuckDBSession
    declaration: TableDeclaration
    stored: LiveRows
    folder: Path

    def listed(self, values: Mapping[str, str]) -> str:
        """Return a list of expressions by column, each of the column's type."""
        types = self.stored.types
        return ", ".join(f"CAST({value} AS {types[name]}) AS {identifier(name)}" for name, value in values.items())

    def rows_of(self, query: str, rows: int) -> list[DataFile]:
        """Write the rows of a query with the declaration's columns, if it gives some."""
        given = self.declaration.column_names
        values = {name: identifier(name) if name in given else "NULL" for name in self.stored.types}
        return [self.written(f"SELECT {self.listed(values)} FROM ({query})", rows)] if rows else []

    def written(self, query: str, rows: int | None = None, below: str = "") -> DataFile:
        """Write the rows of a query to a file of the table.

        Args:
            query: The query.
            rows: How many rows it must give.
            below: Folder of the file.

        Raises:
            UnsafeTable: it gives others.
        """
        snapshot, target = self.stored.snapshot, self.folder / f"{uuid4().hex}.parquet"
        with translating("write rows"):
            written = write_parquet(self.session.con, query, target)
        if rows not in (None, written.rows):
            raise UnsafeTable(
                f"{snapshot.full_name}: a new file of it would have {written.rows:,} rows in place of {rows:,}, so nothing "
                "was committed. One of its files is damaged, or was changed in place: compare each with its statistics in "
                "the log."
            )
        storage = self.session.log(self.declaration).storage
        file = put_data_file(storage, target, written, self.stored.id_columns, below=below)
        target.unlink()
        return file

    def commit(self, proposal: Proposal, record: str) -> int:
        """Commit after the version of the stored rows, and return the new version.

        Raises:
            CommitConflict: another writer has committed after it.
            As `DeltaLog.commit`.
        """
        log, computed = self.session.log(self.declaration), self.stored.snapshot

        def plan(snapshot: Snapshot) -> Proposal:
            refuse_older(snapshot, self.session.fences.of(snapshot.full_name))
            if (snapshot.uuid, snapshot.version) != (computed.uuid, computed.version):
                raise _overtaken(computed.full_name, computed.version)
            return replace(proposal, record=record, txns={COMPUTED: computed.version + 1})

        try:
            version = log.commit(plan).version
        except NOTHING_COMMITTED:
            # After any other error, a ratified commit may name the files.
            log.storage.discard(file.path for file in (*proposal.adds, *proposal.change_files))
            raise
        self.session.after_commits(self.declaration, [version])
        return version


def _overtaken(full_name: str, version: int) -> CommitConflict:
    return CommitConflict(f"Another writer committed to {full_name} after version {version}.")


@dataclass(frozen=True)
class _Changed:
    """Files of which rows are changed, how many rows they have, and how many of these are updated and deleted."""

    paths: Sequence[str] = ()
    rows: int = 0
    updated: int = 0
    deleted: int = 0

    def with_others(self, other: "_Changed") -> "_Changed":
        """Return both."""
        return _Changed(
            (*self.paths, *other.paths),
            *(self.rows + other.rows, self.updated + other.updated, self.deleted + other.deleted),
        )


class _Merge:
    """The changed files beside the changes: `f` and `c` in the queries."""

    def __init__(self, follower: _Follower, changes: str) -> None:
        self._follower, self._stored, self._declaration = follower, follower.stored, follower.declaration
        self._found = f"SELECT * FROM ({changes}) WHERE ratify_found"
        self._new = f"SELECT * FROM ({changes}) WHERE ratify_present AND NOT ratify_found"
        keys = (
            f"f.{identifier(key)} IS NOT DISTINCT FROM c.{identifier(f'ratify_key_{key}')}"
            for key in follower.declaration.keys
        )
        self._same = " AND ".join(keys)

    def commit(self, record: str) -> int:
        """Write the files and commit them."""
        ((inserted,),) = self._rows(f"SELECT count(*) FROM ({self._new})")
        groups, adds, feed = self._groups(), list[DataFile](), list[DataFile]()
        keeps_feed = records_changes(self._stored.snapshot.properties)
        for number, group in enumerate(groups or [_Changed()]):
            new = 0 if number else inserted
            if rows := group.rows - group.deleted + new:
                adds.append(self._follower.written(self._after(group.paths, with_new=new > 0), rows))
            # Where a commit only adds files, their rows are the feed.
            if groups and keeps_feed:
                feed.append(self._follower.written(self._feed(group.paths, with_new=new > 0), below=_CHANGE_DATA))
        changed = reduce(_Changed.with_others, groups, _Changed())
        output = sum(file.rows for file in adds)
        proposal = Proposal(
            adds=adds,
            removes=[self._stored.files[path] for path in changed.paths],
            change_files=feed,
            operation="MERGE",
            parameters={"predicate": self._same},
            # As Spark's MERGE reports them.
            metrics={
                "numSourceRows": inserted + changed.updated + changed.deleted,
                "numTargetRowsInserted": inserted,
                "numTargetRowsUpdated": changed.updated,
                "numTargetRowsDeleted": changed.deleted,
                "numTargetRowsCopied": output - inserted - changed.updated,
                "numTargetFilesAdded": len(adds),
                "numTargetFilesRemoved": len(changed.paths),
            },
        )
        return self._follower.commit(proposal, record)

    def _groups(self) -> list[_Changed]:
        """The files with changed rows: of each group, one file is written."""
        counted = self._rows(
            f"SELECT f.{FILE}, count(*) FILTER (c.ratify_present), count(*) FILTER (NOT c.ratify_present) "
            f"FROM ({self._stored.select(columns=self._declaration.keys)}) AS f "
            f"JOIN ({self._found}) AS c ON {self._same} GROUP BY 1 ORDER BY 1"
        )
        groups, size = list[_Changed](), 0
        for path, updated, deleted in counted:
            bytes_ = int(self._stored.files[path].add["size"])
            changed = _Changed((path,), self._stored.rows_of(path), updated, deleted)
            if groups and size + bytes_ <= TARGET_BYTES:
                groups[-1], size = groups[-1].with_others(changed), size + bytes_
            else:
                groups.append(changed)
                size = bytes_
        return groups

    def _after(self, paths: Sequence[str], *, with_new: bool) -> str:
        """The query for the rows of files after the changes, and for the new ones."""
        parts = list[str]()
        if paths:
            parts.append(
                f"SELECT {self._follower.listed(self._values)} FROM ({self._stored.select(paths)}) AS f "
                f"LEFT JOIN ({self._found}) AS c ON {self._same} WHERE c.ratify_present IS DISTINCT FROM false"
            )
        return " UNION ALL ".join([*parts, *([self._inserted] if with_new else [])])

    def _feed(self, paths: Sequence[str], *, with_new: bool) -> str:
        """The query for the rows of the change data feed."""
        listed, columns = self._follower.listed, self._stored.columns
        both = f"FROM ({self._stored.select(paths)}) AS f JOIN ({self._found}) AS c ON {self._same}"
        before = listed({name: f"f.{identifier(name)}" for name in columns})
        after = listed({name: self._values[name] for name in columns})
        parts = [
            f"SELECT {before}, CASE WHEN c.ratify_present THEN 'update_preimage' ELSE 'delete' END AS {_CHANGE} {both}",
            f"SELECT {after}, 'update_postimage' {both} WHERE c.ratify_present",
        ]
        if with_new:
            parts.append(f"SELECT {', '.join(map(identifier, columns))}, 'insert' FROM ({self._inserted})")
        return " UNION ALL ".join(parts)

    @property
    def _inserted(self) -> str:
        written = self._declaration.column_names
        values = {name: f"c.{identifier(name)}" if name in written else "NULL" for name in self._stored.types}
        return f"SELECT {self._follower.listed(values)} FROM ({self._new}) AS c"

    @property
    def _values(self) -> dict[str, str]:
        """Expressions of the columns of a row of `f` that may have a change in `c`."""
        values = {name: f"f.{identifier(name)}" for name in self._stored.types}
        for name in self._declaration.column_names:
            values[name] = f"CASE WHEN c.ratify_present THEN c.{identifier(name)} ELSE {values[name]} END"
        for name in self._stored.id_columns[1:]:
            # NULL: the row was changed last by the commit that its file is of.
            values[name] = f"CASE WHEN c.ratify_present IS NULL THEN {values[name]} END"
        return values

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        return self._follower.session.con.execute(text).fetchall()
