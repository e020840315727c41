"""Replay of a sync's dead letters: those that fit now are written, each once.

In the strategies append and cdc rows are not read again. A replay claims them in one commit, which sets `replayed_at`;
releases those that do not fit; writes the others in one commit to the destination; and removes them. A claim that was
interrupted is finished by the next replay: the destination takes the rows of a claim once (Delta's `txn`), and events
that were applied change nothing. In other strategies every run reads all rows, so that a replay is a run.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.syncs.accepted_rows import RowConversion
from ratify_lakehouse.components.syncs.dead_letters import (
    DEAD_LETTERS,
    accumulate,
    dead_letters,
    of_sync,
    rewrite_letters,
    settle_dead_letters,
)
from ratify_lakehouse.components.syncs.letter_values import row_sql
from ratify_lakehouse.components.syncs.lossless_values import sql_name
from ratify_lakehouse.components.syncs.prepared_changes import compare
from ratify_lakehouse.components.syncs.row_queries import quoted
from ratify_lakehouse.components.syncs.source_rows import MALFORMED, SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_pass import write_changes
from ratify_lakehouse.components.syncs.sync_tables import OpenTables, PreparedChanges, SyncTables
from ratify_lakehouse.delta.computed_inputs import InputVersion

_HASH = "ratify_row_hash"


@dataclass(frozen=True)
class _Claim:
    """Letters that one replay has claimed, and whose rows have the same columns.

    Attributes:
        at: When, in microseconds since 1970.
        types: Of the columns, JSON.
    """

    at: int
    types: str

    def time(self, sql: RuleDialect) -> str:
        """SQL of when."""
        at = dt.datetime.fromtimestamp(self.at // 1_000_000, dt.UTC).replace(microsecond=self.at % 1_000_000)
        return f"CAST('{at.isoformat(sep=' ')}' AS {sql_name(sql, 'timestamp')})"

    @property
    def inputs(self) -> dict[str, InputVersion]:
        # Each claim is a source of its own: by a clock alone, one of another machine could count as one that is done.
        return {"dead letters": InputVersion(hashlib.sha256(f"{self.at} {self.types}".encode()).hexdigest(), 0)}


@dataclass(frozen=True)
class ReplayedLetters:
    """What a replay did.

    Attributes:
        replayed: Rows that are no more among the dead letters.
        waiting: Rows that still are.
    """

    replayed: int
    waiting: int


def replay_dead_letters(opened: OpenTables, sync: SyncDeclaration, run: Callable[[], object]) -> ReplayedLetters:
    """Write the dead letters of a sync that fit now.

    Args:
        opened: Opens the engine.
        sync: The sync.
        run: A run of it.

    Raises:
        As `SyncPass.run`; rows that do not fit stay.
    """
    with opened() as tables:
        if sync.strategy is SyncStrategy.APPEND:
            tables.position.refuse_written()
            settle_dead_letters(tables, sync)
        before = dead_letters(tables, sync)
        claims = _claims(tables, sync) if before and accumulate(sync) else []
    if before and not accumulate(sync):
        run()
    for claim in claims:
        with opened() as tables:
            _finish(tables, sync, claim)
    with opened() as tables:
        after = dead_letters(tables, sync)
    return ReplayedLetters(before - after, after)


def _claims(tables: SyncTables, sync: SyncDeclaration) -> list[_Claim]:
    """Claim what is not claimed yet, and return all claims, in their order."""
    tables.ensure_table(DEAD_LETTERS)
    claim = _Claim(int(dt.datetime.now(dt.UTC).timestamp() * 1_000_000), "")
    waiting = f"{of_sync(sync)} AND t.replayed_at IS NULL"
    if sync.strategy is SyncStrategy.APPEND:
        # The rows of a pass that may have been killed before its commit are read again.
        waiting += " AND t.found_by IS NULL"
    rewrite_letters(tables, waiting, {"replayed_at": claim.time(tables.sql)})
    text = tables.sql.translated(
        f"SELECT DISTINCT unix_micros(t.replayed_at) AS claim, t.types FROM {{letters}} AS t "
        f"WHERE {of_sync(sync)} AND t.replayed_at IS NOT NULL ORDER BY 1, 2"
    )
    found = tables.rows(tables.query(text, letters=tables.rows_now(DEAD_LETTERS)))
    return [_Claim(row["claim"], row["types"]) for row in found]


def _finish(tables: SyncTables, sync: SyncDeclaration, claim: _Claim) -> None:
    sql, skipping = tables.sql, replace(sync, row_errors=RowErrors.SKIP)
    claimed = f"{of_sync(sync)} AND t.replayed_at = {claim.time(sql)} AND t.types = {quoted(sql, claim.types)}"
    source = _claimed_rows(tables, claim, claimed)
    position = tables.position
    # The rows of an interrupted claim may be in the destination: all that it still has were written.
    if sync.strategy is not SyncStrategy.APPEND or not position.is_current(source):
        destination = tables.destination(source.types)
        accepted = RowConversion(tables, skipping, source, destination, sql).accepted()
        if accepted.failed is not None:
            # Before the others are written.
            unfit = f"t.row_hash IN (SELECT {_HASH} FROM {{failed}})"
            never = f"CAST(NULL AS {sql_name(sql, 'timestamp')})"
            rewrite_letters(tables, f"{claimed} AND {unfit}", {"replayed_at": never}, failed=accepted.failed)
        counts, changes = compare(tables, skipping, source, destination, accepted)
        record = position.record(source, destination.version)
        write_changes(tables, skipping, PreparedChanges(source, destination, record, accepted, counts, changes))
    rewrite_letters(tables, claimed, present="false")


def _claimed_rows(tables: SyncTables, claim: _Claim, claimed: str) -> SourceRows:
    """The rows of a claim, as the source had them."""
    types: dict[str, str] = json.loads(claim.types)
    sql = tables.sql
    struct, columns = row_sql(types, f"t.{sql.identifier('row')}", "ratify_of", sql)
    every = tables.query(
        sql.translated("SELECT *, explode(sequence(1, CAST(rows AS INT))) AS ratify_number FROM {letters}"),
        letters=tables.rows_now(DEAD_LETTERS),
    )
    struct, columns = (text.replace("{", "{{").replace("}", "}}") for text in (struct, columns))
    rows = tables.computed(
        tables.query(
            f"SELECT {columns}, row_hash AS {_HASH} FROM "
            f"(SELECT {struct} AS ratify_of, t.row_hash FROM {{every}} AS t WHERE {claimed})",
            every=every,
        )
    )
    malformed = MALFORMED if types.pop(MALFORMED, "") else ""
    return SourceRows(rows, claim.inputs, types, malformed, carried=_HASH)
