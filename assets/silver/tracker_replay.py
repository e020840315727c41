"""Records in quarantine, corrected or validated by newer code, back into silver: each exactly once.

A replay claims all that is in quarantine in one commit, by setting `replayed_at` to one time for all. What passes goes into
silver, what does not goes back to quarantine, and the ledger gets a line under that time. A claim without a line was killed
in between, and the next replay finishes it first: Delta knows the claim's mark (txn app id) in each table that has it
already.
"""

import base64
import binascii
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from assets.silver.tracker_stream import Account, account, stopped, work
from assets.silver.tracker_tables import QUARANTINE, REPLAY, STREAM_BATCHES, TRACKER_EVENTS
from components.stream.micro_batch import EXPECTATION_FAILED, batch_function
from resources.errors import BadCorrection
from resources.spark import stream_checkpoints
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import literal

_VIEW = "ratify_corrections"
_IS_RECORD = "target.topic = source.topic AND target.partition = source.partition AND target.offset = source.offset"


@dataclass(frozen=True)
class Correction:
    """The value that a record in quarantine should have had."""

    topic: str
    partition: int
    offset: int
    value: bytes


def read_corrections(path: Path) -> list[Correction]:
    """Read corrections, one JSON object a line: topic, partition, offset, and one of `value` and `value_base64`.

    `value` is the event as a JSON object, or any text.

    Raises:
        BadCorrection: a line is none of that; the message names it.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCorrection(f"The corrections in {path} cannot be read: {error}.") from error
    return [_correction(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _correction(path: Path, number: int, line: str) -> Correction:
    try:
        given = json.loads(line)
        if "value_base64" in given:
            value = base64.b64decode(given["value_base64"], validate=True)
        else:
            value = (given["value"] if isinstance(given["value"], str) else json.dumps(given["value"])).encode()
        return Correction(str(given["topic"]), int(given["partition"]), int(given["offset"]), value)
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise BadCorrection(
            f"{path}, line {number} is no correction ({type(error).__name__}: {error}). It has to be a JSON object with "
            "topic, partition, offset, and value or value_base64."
        ) from error


def correct(spark: Spark, corrections: Sequence[Correction]) -> None:
    """Note corrections in quarantine, in one commit. One that is there already, even replayed, may be given again.

    Raises:
        BadCorrection: a record is not in quarantine; no correction was made.
    """
    if not corrections:
        return
    table = spark.full_name(QUARANTINE)
    given = spark.session.createDataFrame(
        [astuple(correction) for correction in corrections], "topic string, partition int, offset bigint, value binary"
    )
    given.createOrReplaceTempView(_VIEW)
    known = f"{_IS_RECORD} AND (target.replayed_at IS NULL OR target.corrected <=> source.value)"
    missing = spark.rows(
        spark.sql(f"SELECT topic, partition, offset FROM {_VIEW} AS source ANTI JOIN {table} AS target ON {known}")
    )
    if missing:
        shown = ", ".join(f"{row['topic']}/{row['partition']}/{row['offset']}" for row in missing[:5])
        raise BadCorrection(f"{len(missing)} of {len(corrections)} corrections are for records not in quarantine: {shown}.")
    merge = (
        f"MERGE INTO {table} AS target USING {_VIEW} AS source ON {_IS_RECORD} "
        "WHEN MATCHED AND target.replayed_at IS NULL AND NOT (target.corrected <=> source.value) "
        "THEN UPDATE SET corrected = source.value"
    )
    spark.commit(table, lambda: spark.rows(spark.sql(merge)))


def replay(spark: Spark) -> Account:
    """Validate all that is in quarantine again, by the corrected values where there are such; return what became of it.

    To be called when the stream has run: it needs a checkpoint.

    Raises:
        ExpectationFailed: a record fails an expectation that stops the batch; it stays claimed until the next replay.
    """
    claims = _unfinished(spark)
    claim = int(dt.datetime.now(dt.UTC).timestamp() * 1_000_000)
    for known in claims:
        _finish(spark, known)
    table = spark.full_name(QUARANTINE)
    update = f"UPDATE {table} SET replayed_at = timestamp_micros({claim}) WHERE replayed_at IS NULL"
    if spark.commit(table, lambda: spark.rows(spark.sql(update))):
        _finish(spark, claim)
        claims.append(claim)
    ids = ", ".join(map(str, claims)) or "NULL"
    return account(spark, f"stream = {literal(REPLAY)} AND batch_id IN ({ids})")


def _unfinished(spark: Spark) -> list[int]:
    """Claims without a ledger entry, but for those that a rebuild has answered since."""
    begun = stream_checkpoints.current(spark, TRACKER_EVENTS)
    since = int(begun.begun.timestamp() * 1_000_000) if begun else 0
    ledger = f"SELECT batch_id FROM {spark.full_name(STREAM_BATCHES)} WHERE stream = {literal(REPLAY)}"
    rows = spark.rows(
        spark.sql(
            f"SELECT DISTINCT unix_micros(replayed_at) AS claim FROM {spark.full_name(QUARANTINE)} "
            f"WHERE unix_micros(replayed_at) > {since} AND unix_micros(replayed_at) NOT IN ({ledger}) ORDER BY claim"
        )
    )
    return [row["claim"] for row in rows]


def _finish(spark: Spark, claim: int) -> None:
    records = (
        "SELECT key, coalesce(corrected, value) AS value, topic, partition, offset, `timestamp`, headers "
        f"FROM {spark.full_name(QUARANTINE)} WHERE replayed_at = timestamp_micros({claim})"
    )
    # A mark for each claim: of two replays at once, the later one's would hide the other.
    function: Any = batch_function(work(spark, str(claim), replay=True))
    with spark.isolated_session() as session:
        try:
            function(session.sql(records), claim)
        except RuntimeError as error:
            if EXPECTATION_FAILED not in str(error):
                raise
            raise stopped(str(error)) from error
