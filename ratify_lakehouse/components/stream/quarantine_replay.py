"""Replay: records in quarantine, corrected or validated by newer code, back into silver, each exactly once.

A replay claims all records in quarantine in one commit: it sets their `replayed_at` to one time. Those that pass are merged
into silver, those that fail go back to quarantine, and the ledger gets an entry with that time as its batch id. A claim
without an entry was interrupted, and the next replay finishes it first: Delta skips the writes of the claim's mark (txn app
id) that are in a table already.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.components.stream.micro_batch import EXPECTATION_FAILED, BatchStatements, batch_function
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES, Account, account
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.erasure_fence import written_after
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, versions_before
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ExpectationFailed, ReadBeforeErasure, StreamFailed
from ratify_lakehouse.sql.spark_sql import literal, table_name


@dataclass(frozen=True)
class QuarantineReplay:
    """How the quarantine of a table is replayed.

    Attributes:
        target: Table that the records are for.
        quarantine: Its quarantine.
        name: Name of the replay in the ledger.
        statements: Gives what is run on the claimed records, by a mark of its own for each claim.
        explained: Gives the error for the text of Spark's.
    """

    spark: Spark
    target: TableDeclaration
    quarantine: TableDeclaration
    name: str
    statements: Callable[[str], BatchStatements]
    explained: Callable[[str], StreamFailed | ExpectationFailed]

    def run(self) -> Account:
        """Validate all records in quarantine again, with their corrected values; return what became of them.

        The stream must have run before: this needs its checkpoint.

        Raises:
            ExpectationFailed: a record fails an expectation that stops the batch; it stays claimed until the next replay.
            WrittenAfterErasure: a data subject was erased meanwhile, and its records may be among those that were replayed.
        """
        spark = self.spark
        claims = self._unfinished()
        claim = int(dt.datetime.now(dt.UTC).timestamp() * 1_000_000)
        for known in claims:
            self._finish(known)
        table = spark.full_name(self.quarantine)
        update = f"UPDATE {table_name(table)} SET replayed_at = timestamp_micros({claim}) WHERE replayed_at IS NULL"
        if spark.commit(table, lambda: spark.rows(spark.sql(update))):
            self._finish(claim)
            claims.append(claim)
        ids = ", ".join(map(str, claims)) or "NULL"
        return account(spark, f"stream = {literal(self.name)} AND batch_id IN ({ids})")

    def _unfinished(self) -> list[int]:
        """Claims without a ledger entry, except those from before the last rebuild, which has validated their records."""
        spark = self.spark
        begun = stream_checkpoints.current(spark, self.target)
        since = int(begun.begun.timestamp() * 1_000_000) if begun else 0
        ledger = f"SELECT batch_id FROM {spark.sql_name(STREAM_BATCHES)} WHERE stream = {literal(self.name)}"
        rows = spark.rows(
            spark.sql(
                f"SELECT DISTINCT unix_micros(replayed_at) AS claim FROM {spark.sql_name(self.quarantine)} "
                f"WHERE unix_micros(replayed_at) > {since} AND unix_micros(replayed_at) NOT IN ({ledger}) ORDER BY claim"
            )
        )
        return [row["claim"] for row in rows]

    def _finish(self, claim: int) -> None:
        records = (
            "SELECT key, coalesce(corrected, value) AS value, topic, partition, offset, `timestamp`, headers "
            f"FROM {self.spark.sql_name(self.quarantine)} WHERE replayed_at = timestamp_micros({claim})"
        )
        before = versions_before(self.spark, *map(self.spark.full_name, (self.target, self.quarantine)))
        # A mark for each claim: with one mark for two replays at once, Delta would skip the writes of one of them.
        function: Any = batch_function(self.statements(str(claim)))
        with self.spark.isolated_session() as session:
            try:
                function(session.sql(records), claim)
            except RuntimeError as error:
                if EXPECTATION_FAILED not in str(error):
                    raise
                raise self.explained(str(error)) from error
        # The function knows of no fence, and the `txn` of its writes is not that of one.
        for full_name, version in before.items():
            try:
                refuse_erased(self.spark, full_name, version)
            except ReadBeforeErasure as error:
                raise written_after(full_name, self.spark.catalog.version(full_name)) from error
