"""The stream from bronze into silver: what it runs on each batch, how it is started, and how it is begun anew."""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.silver.tracker_tables import (
    EXPECTATIONS,
    ON_TIME,
    QUARANTINE,
    REPLAY,
    STREAM,
    STREAM_BATCHES,
    TRACKER_EVENTS,
    UNIQUE,
)
from components.expectations.expectation_rules import Action
from components.expectations.validation import ValidationResult, total
from components.stream.micro_batch import ACCOUNT, BATCH, VALIDATED, Work, batch_function, counted_in
from ingest.records import event_time
from resources.declarations import TableDeclaration
from resources.errors import ExpectationFailed, ResetRefused, StreamFailed
from resources.spark import stream_checkpoints
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions, follow
from resources.spark.table_stream import TableStream, bytes_outstanding
from resources.sql.spark_sql import literal

logger = logging.getLogger(__name__)

_SQL = Path(__file__).parent
TABLES = (TRACKER_EVENTS, QUARANTINE, STREAM_BATCHES)
"""What the stream writes."""

# Delta asks twice where a new stream begins that is to read a table as it is. Where bronze has a commit in between, the
# first batch ends before it begins, and its checkpoint is of no use: nothing was read by it.
_OVERTAKEN = "Cannot provide a start version greater than the end version"
_BEGINNINGS = 3
# Of these alone, a table is what its commits have added. What OPTIMIZE has put together, VACUUM may have taken away.
_ADDING = frozenset({"CREATE TABLE", "STREAMING UPDATE"})
# What Delta says where rows that the stream has read are gone from bronze, or bronze is another table by now.
_REFRESHED = (
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
)

MAX_FILES = 1000
"""Files of bronze in one batch at most, as Delta's own default."""

AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "TrackerEvent",
        "fields": [
            {"name": "time", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "version", "type": ["null", "string"]},
            {"name": "model", "type": ["null", "string"]},
            {"name": "heart_bpm", "type": ["null", "int"]},
            {"name": "kcal", "type": ["null", "int"]},
        ],
    }
)
"""What a record in Avro is written with; Confluent's header before it is skipped, not looked up."""

_FROM_AVRO = f"from_avro(avro_body, {literal(AVRO_SCHEMA)}, map('mode', 'PERMISSIVE'))"
# To a Spark without spark-avro a record in Avro is unreadable: it waits in quarantine for one that has it.
_NO_AVRO = "CAST(NULL AS STRUCT<time: TIMESTAMP, version: STRING, model: STRING, heart_bpm: INT, kcal: INT>)"


def parsed_sql(spark: Spark, records: str) -> str:
    """Return the query that reads records (a table, a view, or a query in brackets) of the shape of bronze."""
    avro = _FROM_AVRO if _reads_avro(spark) else _NO_AVRO
    time = event_time.from_text("time_text")
    return Template((_SQL / "tracker_events_parsed.sql").read_text()).substitute(batch=records, avro=avro, time=time)


def _reads_avro(spark: Spark) -> bool:
    try:
        spark.rows(spark.sql(f"SELECT {_FROM_AVRO} FROM (SELECT CAST(NULL AS BINARY) AS avro_body)"))
    except Exception as error:
        if "AVRO" not in str(error):
            raise
        return False
    return True


def work(spark: Spark, checkpoint: str, *, replay: bool = False) -> Work:
    """Return what is done with each batch of the stream, or with the records of a replay."""
    silver, aside, ledger = (spark.full_name(table) for table in (TRACKER_EVENTS, QUARANTINE, STREAM_BATCHES))
    stream = REPLAY if replay else STREAM
    # A replay validates the corrected values itself.
    corrections = _Corrections(made=True) if replay else _corrections(spark)
    records = f"(\n{_sql('tracker_events_corrected', quarantine=aside, batch=BATCH)})" if corrections.replayed else BATCH
    quarantined = _sql("tracker_events_quarantined", validated=VALIDATED, quarantined=EXPECTATIONS.quarantined())
    return Work(
        app_id=f"{stream}:{checkpoint}",
        target=silver,
        validate=EXPECTATIONS.validated(parsed_sql(spark, records)),
        count=EXPECTATIONS.counted(VALIDATED, "unix_micros(time)"),
        merge=_sql("tracker_events_merge", silver=silver, validated=VALIDATED),
        quarantine=_sql("tracker_events_quarantine_merge", quarantine=aside, records=quarantined)
        if corrections.made
        # What was not corrected a rebuild takes out before it begins: none of these records is there yet.
        else f"INSERT INTO {aside} BY NAME {quarantined}",
        account=f"INSERT INTO {ledger} BY NAME SELECT *, current_timestamp() AS at FROM {ACCOUNT}",
        shape=", ".join(f"{column.name} {column.type}" for column in STREAM_BATCHES.columns[:-1]),
        stream=stream,
        checkpoint=checkpoint,
        fail=EXPECTATIONS.named(Action.FAIL),
        set_aside=EXPECTATIONS.named(Action.QUARANTINE),
        late=ON_TIME,
        unique=UNIQUE,
        from_quarantine=replay,
    )


def _sql(name: str, **given: str) -> str:
    # The bounds of a batch ($lower, $upper) are put in when they are known.
    return Template((_SQL / f"{name}.sql").read_text()).safe_substitute(given)


@dataclass(frozen=True)
class _Corrections:
    """Whether quarantine has records that were corrected, and such that were replayed since."""

    made: bool = False
    replayed: bool = False


def _corrections(spark: Spark) -> _Corrections:
    corrected = spark.table(QUARANTINE).where("corrected IS NOT NULL")
    (row,) = spark.rows(corrected.selectExpr("count(*) > 0 AS made", "count(replayed_at) > 0 AS replayed"))
    return _Corrections(row["made"], row["replayed"])


def ensure_tables(spark: Spark) -> list[TableDeclaration]:
    """Make what is missing of bronze's table and the stream's own; return those of the latter that were made."""
    spark.ensure_table(TRACKER_EVENTS_RAW)
    return [table for table in TABLES if spark.ensure_table(table)]


_NUMBERS = ("records", "accepted", "dropped", "quarantined", "late", "duplicates")


@dataclass(frozen=True)
class Account:
    """What became of the records of some batches.

    Attributes:
        numbers: By the columns of the ledger.
        found: What the expectations found.
        run: Numbers of the stream itself, which a replay does not have.
    """

    numbers: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_NUMBERS, 0))
    found: ValidationResult = field(default_factory=ValidationResult)
    run: Mapping[str, float] = field(default_factory=dict[str, float])


def stream(
    spark: Spark,
    *,
    max_files: int = MAX_FILES,
    full_refresh: bool = False,
    options: StreamOptions | None = None,
) -> Account:
    """Bring silver up to date with bronze, and return what became of the records that were new.

    It ends then, or as `options` says. With `full_refresh`, silver is made anew from the whole of bronze; so it is where the
    checkpoint is lost, or bronze was refreshed, if bronze has all that silver was made of. What was corrected in quarantine
    and replayed stays corrected.

    Raises:
        ResetRefused: silver would have to be made anew, and bronze no longer has all that it was made of.
        ExpectationFailed: records fail an expectation that stops the batch; it was not committed, those before it were.
        StreamBusy: another process of this home runs it.
        StreamFailed: the stream ended with another error.
    """
    with stream_checkpoints.exclusive(TRACKER_EVENTS):
        for _ in range(_BEGINNINGS):
            try:
                return _stream(spark, max_files, full_refresh, options or StreamOptions())
            except StreamFailed as error:
                if not (_refreshed(error) or _overtaken(spark, error)):
                    raise
                logger.warning("%s Begun anew.", error)
                stream_checkpoints.forget(spark, TRACKER_EVENTS)
        return _stream(spark, max_files, full_refresh, options or StreamOptions())


def _stream(
    spark: Spark,
    max_files: int,
    full_refresh: bool,
    options: StreamOptions,
) -> Account:
    if full_refresh:
        stream_checkpoints.forget(spark, TRACKER_EVENTS)
    # Without a checkpoint a rebuild is begun, or begun again: the checkpoint goes first and comes last.
    checkpoint = stream_checkpoints.current(spark, TRACKER_EVENTS)
    if checkpoint is None:
        if not full_refresh:
            _refuse_loss(spark)
        _empty(spark)
        checkpoint = stream_checkpoints.begin(spark, TRACKER_EVENTS)
    stream_checkpoints.sweep(checkpoint.url)
    before = _last_batch(spark, checkpoint.name)
    function = batch_function(work(spark, checkpoint.name))
    raw = spark.full_name(TRACKER_EVENTS_RAW)
    bronze = TableStream(max_files_per_trigger=max_files, starting_version=_first_version(spark) if before < 0 else None)
    with spark.isolated_session() as session:
        source = bronze.read(session, raw)
        writer = source.writeStream.queryName(TRACKER_EVENTS.name).foreachBatch(function)
        writer = writer.option("checkpointLocation", checkpoint.url).trigger(**options.trigger)
        run = follow(spark, writer.start, options, explain=stopped)
    waiting = {"numBytesOutstanding": bytes_outstanding(spark, raw, run.position)} if run.position else {}
    done = account(spark, f"stream = {literal(STREAM)} AND checkpoint = {literal(checkpoint.name)} AND batch_id > {before}")
    return replace(done, run={**run.numbers, **waiting})


def _refreshed(error: StreamFailed) -> bool:
    return any(sign in str(error) for sign in _REFRESHED)


def _overtaken(spark: Spark, error: StreamFailed) -> bool:
    begun = stream_checkpoints.current(spark, TRACKER_EVENTS)
    return _OVERTAKEN in str(error) and begun is not None and _last_batch(spark, begun.name) < 0


def _refuse_loss(spark: Spark) -> None:
    """Let nothing be lost by making silver anew, unless that was asked for.

    Raises:
        ResetRefused: bronze no longer has all that silver was made of.
    """
    silver, aside, bronze = (spark.full_name(table) for table in (TRACKER_EVENTS, QUARANTINE, TRACKER_EVENTS_RAW))
    unfounded = _sql("tracker_events_unfounded", silver=silver, quarantine=aside, bronze=bronze)
    if gone := spark.rows(spark.sql(unfounded)):
        lost = sum(row["records"] for row in gone)
        shown = ", ".join("{topic}/{partition}: {records:,} from {first} to {last}".format(**row) for row in gone[:5])
        raise ResetRefused(
            f"{silver} is not made anew: {lost:,} records that it was made of are no longer in "
            f"{bronze}, which was refreshed or made anew ({shown}). Put them back into it from an earlier version "
            "(docs/expectations.md) and start the stream again; or, if you mean to lose them, materialize it with "
            "full_refresh: true."
        )


def _first_version(spark: Spark) -> int | None:
    """The version from which bronze's commits give all of its rows, of which Delta is in no doubt; None if there is none."""
    history = spark.history(spark.full_name(TRACKER_EVENTS_RAW))
    return 0 if history[-1].version == 0 and _ADDING.issuperset(commit.operation for commit in history) else None


def _empty(spark: Spark) -> None:
    """Take out what is made from bronze; corrections are not."""
    streams = ", ".join(map(literal, (STREAM, REPLAY)))
    out = (
        (TRACKER_EVENTS, "true"),
        (QUARANTINE, "corrected IS NULL"),
        (STREAM_BATCHES, f"stream IN ({streams})"),
    )
    for table, rows in out:
        delete = f"DELETE FROM {spark.full_name(table)} WHERE {rows}"
        spark.commit(spark.full_name(table), lambda delete=delete: spark.rows(spark.sql(delete)))


def stopped(error_text: str) -> StreamFailed | ExpectationFailed:
    """Return what an error of a batch means."""
    if counted := counted_in(error_text):
        failed = {name: counted["failed"][name] for name in EXPECTATIONS.named(Action.FAIL)}
        shown = ", ".join(f"{name} ({count:,})" for name, count in failed.items() if count)
        return ExpectationFailed(
            f"A batch of {counted['rows']:,} records was not committed into {STREAM}: records fail {shown}. Correct the "
            "source, or let the expectation do something else with such records, and start it again.",
            counted,
        )
    return StreamFailed(
        f"The stream into {STREAM} ended; started again it goes on where it was. Spark says: {_cause(error_text)[:500]}"
    )


def _cause(error_text: str) -> str:
    """The end of the traceback of a batch's function, or else the first line."""
    causes = re.findall(r"^[\w.]+(?:Exception|Error): ?\n?.+$", error_text.partition("JVM stacktrace")[0], re.MULTILINE)
    return " ".join((causes[-1] if causes else error_text.strip().splitlines()[0]).split())


def _last_batch(spark: Spark, checkpoint: str) -> int:
    ledger = spark.table(STREAM_BATCHES).where(f"stream = {literal(STREAM)} AND checkpoint = {literal(checkpoint)}")
    (row,) = spark.rows(ledger.selectExpr("coalesce(max(batch_id), -1) AS last"))
    return int(row["last"])


def account(spark: Spark, batches: str) -> Account:
    """Return what became of the records of those batches in the ledger that the condition `batches` names."""
    ledger = spark.table(STREAM_BATCHES).where(batches).orderBy("batch_id")
    rows = spark.rows(ledger.selectExpr(*_NUMBERS, "failed", "decided", "examples"))
    found = total(ValidationResult(row["records"], row["failed"], row["decided"], row["examples"]) for row in rows)
    return Account({name: sum(row[name] for row in rows) for name in _NUMBERS}, found)
