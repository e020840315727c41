"""A table made equal to the rows of a DuckDB query: one commit replaces all of its files."""

from dataclasses import replace

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.computed_inputs import COMPUTED, computed_in, replaced_after
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.delta.table_repair import refuse_removes
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.pending_append import PendingAppend
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import NOTHING_COMMITTED, CommitConflict, Overtaken
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

_ATTEMPTS = 10


class _Outdated(Exception):
    """Another writer has committed since the table was compared."""


def overwrite_to_match(
    session: DuckDBSession, declaration: TableDeclaration, relation: str, after: int | None = None
) -> WriteResult:
    """Make a table equal to a local relation by one version that replaces its files; by none if it is equal already.

    Args:
        session: Has the relation.
        declaration: The table. It is written by one DuckDB process whole, so it has to be of a size for that.
        relation: Name of a local table or view with at least the table's columns.
        after: See `Spark.merge_to_match`.

    Raises:
        Overtaken: another writer computed the table, or restored it, after that version; compute the relation again.
        CommitConflict: other writers won every attempt; nothing was committed.
        UnsafeTable: the table is append-only, has a change data feed, or differs from its declaration.
        As `DuckDBSession.append`.
    """
    retrying = Retrying(retry=retry_if_exception_type(_Outdated), stop=stop_after_attempt(_ATTEMPTS), reraise=True)
    try:
        return retrying(_overwrite, session, declaration, relation, after)
    except _Outdated:
        raise CommitConflict(
            f"Other writers of {declaration.table_name} committed before each of {_ATTEMPTS} attempts; nothing was written."
        ) from None


def _overwrite(session: DuckDBSession, declaration: TableDeclaration, relation: str, after: int | None) -> WriteResult:
    log = session.log(declaration)
    before = log.refresh().version
    since = before if after is None else after
    newer = (commit_from_actions(version, log.actions(version)) for version in range(since + 1, before + 1))
    if computed_in(filter(None, newer)):
        raise Overtaken(f"Another writer committed to {declaration.table_name} after version {since} first.")
    # Only now, so that what is compared is that version, or a later one, which the commit would not follow.
    session.attach()
    columns = ", ".join(map(identifier, declaration.column_names))
    with scratch_folder(session.home) as folder:
        staged = session.stage(declaration, f"SELECT {columns} FROM {relation}", (), folder)
        added, removed, updated = _difference(session, declaration, columns, staged)
        if not (added or removed):
            return WriteResult(None, log.refresh().version, staged.rows)
        version = _commit(session, declaration, staged, before, removed)
    commit = commit_from_actions(version, log.actions(version))
    counts = {"inserted": added - updated, "updated": updated, "deleted": removed - updated}
    return WriteResult(commit, version, staged.rows, counts)


def _difference(session: DuckDBSession, declaration: TableDeclaration, columns: str, staged: Staged) -> tuple[int, int, int]:
    """How many rows are new in the staged ones, how many only the table has, and how many of both share keys."""
    new = f"SELECT {columns} FROM read_parquet({literal(str(staged.parquet))})"
    old = f"SELECT {columns} FROM {attached(declaration.table_name)}"
    keys = ", ".join(map(identifier, declaration.keys))
    same = f"SELECT {keys} FROM added INTERSECT ALL SELECT {keys} FROM removed"
    ((added, removed, updated),) = session.rows(
        f"WITH added AS MATERIALIZED ({new} EXCEPT ALL {old}), removed AS MATERIALIZED ({old} EXCEPT ALL {new}) "
        "SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM removed), "
        f"{f'(SELECT count(*) FROM ({same}))' if keys else 0}"
    )
    return added, removed, updated


def _commit(session: DuckDBSession, declaration: TableDeclaration, staged: Staged, before: int, removed: int) -> int:
    log = session.log(declaration)
    pending = PendingAppend(session.con, log, [staged], exclusive=True)

    def proposal(snapshot: Snapshot) -> Proposal:
        if snapshot.version != before:
            raise _Outdated
        files = log.files(snapshot)
        if files:
            refuse_removes(snapshot, files)
        # As Spark's INSERT OVERWRITE reports it.
        return replace(
            pending.proposal(snapshot),
            removes=files,
            parameters={"mode": "Overwrite", "partitionBy": "[]"},
            metrics={"numDeletedRows": removed},
            record=replaced_after(before, declaration.computed_from),
            txns={COMPUTED: before + 1},
        )

    try:
        return log.commit(proposal).version
    except (*NOTHING_COMMITTED, _Outdated):
        # After any other error, a ratified commit may name the files.
        pending.withdraw()
        raise
