"""Replay of a sync's dead letters: those that fit now are written, each once.

In the strategies append and cdc rows are not read again. A replay claims them in one commit, which sets `replayed_at`;
releases those that do not fit; writes the others in one commit to the destination; and removes them. A claim that was
interrupted is finished by the next replay: the destination takes the rows of a claim once (Delta's `txn`), and events
that were applied change nothing. In other strategies every run reads all rows, so that a replay is a run.
"""

import datetime as dt
import hashlib
import json
from dataclasses import dataclass, replace

from ratify_lakehouse.components.syncs.accepted_rows import RowConversion
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS, accumulate, dead_letters, settle_dead_letters
from ratify_lakehouse.components.syncs.letter_values import as_texts, row_sql
from ratify_lakehouse.components.syncs.needed_rows import position_of, read_needed
from ratify_lakehouse.components.syncs.prepared_changes import PreparedChanges, compare
from ratify_lakehouse.components.syncs.row_queries import Rows
from ratify_lakehouse.components.syncs.source_rows import MALFORMED, SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import find_destination
from ratify_lakehouse.components.syncs.sync_pass import SyncPass, noted_before, write_changes
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.spark_sql import literal

_HASH = "ratify_row_hash"


@dataclass(frozen=True)
class _Claim:
    """Letters that one replay has claimed, and whose rows have the same columns.

    Attributes:
        at: When, in microseconds since 1970.
        types: Of the columns, JSON; empty if the letters have none.
    """

    at: int
    types: str

    @property
    def sql(self) -> str:
        return f"timestamp_micros({self.at})"

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


def replay_dead_letters(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> ReplayedLetters:
    """Write the dead letters of a sync that fit now.

    Raises:
        As `SyncPass.run`; rows that do not fit stay.
    """
    if sync.strategy is SyncStrategy.APPEND:
        position = position_of(spark, sync)
        position.refuse_written()
        settle_dead_letters(spark, position)
    before = dead_letters(spark, sync)
    if before and not accumulate(sync):
        SyncPass(spark, duckdb, sync).run()
    elif before:
        for claim in _claims(spark, sync):
            _finish(spark, duckdb, sync, claim)
    after = dead_letters(spark, sync)
    return ReplayedLetters(before - after, after)


def _claims(spark: Spark, sync: SyncDeclaration) -> list[_Claim]:
    """Claim what is not claimed yet, and return all claims, in their order."""
    spark.ensure_table(DEAD_LETTERS)
    name, of_sync = spark.sql_name(DEAD_LETTERS), f"sync = {literal(sync.name)}"
    claim = int(dt.datetime.now(dt.UTC).timestamp() * 1_000_000)
    waiting = f"{of_sync} AND replayed_at IS NULL"
    if sync.strategy is SyncStrategy.APPEND:
        # The rows of a pass that may have been killed before its commit are read again.
        waiting += " AND found_by IS NULL"
    update = f"UPDATE {name} SET replayed_at = timestamp_micros({claim}) WHERE {waiting}"
    spark.commit(spark.full_name(DEAD_LETTERS), lambda: spark.rows(spark.sql(update)))
    found = (
        "SELECT DISTINCT unix_micros(replayed_at) AS claim, coalesce(types, '') AS types "
        f"FROM {name} WHERE {of_sync} AND replayed_at IS NOT NULL ORDER BY 1, 2"
    )
    return [_Claim(row["claim"], row["types"]) for row in spark.rows(spark.query(found))]


def _finish(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, claim: _Claim) -> None:
    skipping, name = replace(sync, row_errors=RowErrors.SKIP), spark.sql_name(DEAD_LETTERS)
    claimed = f"sync = {literal(sync.name)} AND replayed_at = {claim.sql} AND coalesce(types, '') = {literal(claim.types)}"
    full_name = spark.full_name(sync.table)
    before = noted_before(spark, sync)
    source = _claimed_rows(spark, duckdb, sync, claim, claimed)
    position = position_of(spark, sync)
    # The rows of an interrupted claim may be in the destination: all that it still has were written.
    if sync.strategy is not SyncStrategy.APPEND or not position.is_current(source):
        destination = find_destination(spark, skipping, source.types)
        accepted = RowConversion(spark, skipping, source, destination).accepted()
        if accepted.failed is not None:
            _release(spark, claimed, accepted.failed)
        counts, changes = compare(spark, skipping, source, destination, accepted)
        record = position.record(source, destination.version)
        refuse_erased(spark, full_name, before[full_name])
        write_changes(spark, skipping, PreparedChanges(source, destination, record, accepted, counts, changes), before)
    spark.commit(spark.full_name(DEAD_LETTERS), lambda: spark.rows(spark.sql(f"DELETE FROM {name} WHERE {claimed}")))


def _claimed_rows(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, claim: _Claim, claimed: str) -> SourceRows:
    """The rows of a claim, as the source had them.

    Letters of before they had types are read as texts, of which the conversion says whether they fit.
    """
    types: dict[str, str] = (
        json.loads(claim.types) if claim.types else as_texts(read_needed(spark, duckdb, sync).letter_types)
    )
    struct, columns = row_sql(types, "row", "ratify_of")
    rows = spark.computed(
        spark.query(
            f"SELECT {columns}, row_hash AS {_HASH} FROM "
            f"(SELECT {struct} AS ratify_of, row_hash, explode(sequence(1, CAST(rows AS INT))) AS n "
            f"FROM {spark.sql_name(DEAD_LETTERS)} WHERE {claimed})"
        )
    )
    malformed = MALFORMED if types.pop(MALFORMED, "") else ""
    return SourceRows(rows, claim.inputs, types, malformed, carried=_HASH)


def _release(spark: Spark, claimed: str, failed: Rows) -> None:
    """Take rows that do not fit out of a claim, before its others are written."""
    merge = (
        f"MERGE INTO {spark.sql_name(DEAD_LETTERS)} AS t USING (SELECT DISTINCT {_HASH} FROM {{failed}}) AS s "
        f"ON t.row_hash = s.{_HASH} AND {claimed} WHEN MATCHED THEN UPDATE SET replayed_at = NULL"
    )
    spark.commit(spark.full_name(DEAD_LETTERS), lambda: spark.rows(spark.sql(merge, failed=failed)))
