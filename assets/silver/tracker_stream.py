"""The tracker's stream from bronze into silver: its SQL, what it writes, and when a rebuild would lose records."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.silver.tracker_tables import EXPECTATIONS, ON_TIME, QUARANTINE, REPLAY, STREAM, TRACKER_EVENTS, UNIQUE
from components.expectations.expectation_rules import Action
from components.stream.micro_batch import ACCOUNT, BATCH, VALIDATED, BatchStatements
from components.stream.quarantine_replay import QuarantineReplay
from components.stream.stream_ledger import ENTRY_COLUMNS, STREAM_BATCHES, Account
from components.stream.validated_stream import MAX_FILES, ValidatedStream, batch_error
from ingest.records import event_time
from resources.declarations import TableDeclaration
from resources.errors import ExpectationFailed, ResetRefused, StreamFailed
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions
from resources.sql.spark_sql import literal

_SQL = Path(__file__).parent
TABLES = (TRACKER_EVENTS, QUARANTINE, STREAM_BATCHES)
"""What the stream writes."""

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
"""The schema of a record in Avro; Confluent's header before it is skipped, not looked up."""

_FROM_AVRO = f"from_avro(avro_body, {literal(AVRO_SCHEMA)}, map('mode', 'PERMISSIVE'))"
# Without spark-avro, a record in Avro is unreadable: it waits in quarantine for a Spark that has it.
_NO_AVRO = "CAST(NULL AS STRUCT<time: TIMESTAMP, version: STRING, model: STRING, heart_bpm: INT, kcal: INT>)"


def parsed_sql(spark: Spark, records: str) -> str:
    """Return the query that parses records (a table, a view, or a query in brackets) with bronze's columns."""
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


def batch_statements(spark: Spark, checkpoint: str, *, is_replay: bool = False) -> BatchStatements:
    """Return what is run on each batch of the stream, or on the records of a replay."""
    silver, quarantine, ledger = (spark.sql_name(table) for table in TABLES)
    stream_name = REPLAY if is_replay else STREAM
    # A replay reads the corrected values itself.
    corrections = _Corrections(exist=True) if is_replay else _corrections(spark)
    corrected = _sql("tracker_events_corrected", quarantine=quarantine, batch=BATCH)
    records = f"(\n{corrected})" if corrections.replayed else BATCH
    quarantined = _sql("tracker_events_quarantined", validated=VALIDATED, quarantined=EXPECTATIONS.quarantined())
    return BatchStatements(
        app_id=f"{stream_name}:{checkpoint}",
        target=silver,
        validate=EXPECTATIONS.validated(parsed_sql(spark, records)),
        count=EXPECTATIONS.counted(VALIDATED, "unix_micros(time)"),
        merge=_sql("tracker_events_merge", silver=silver, validated=VALIDATED),
        quarantine=_sql("tracker_events_quarantine_merge", quarantine=quarantine, records=quarantined)
        if corrections.exist
        # A rebuild first deletes the records without a correction: none of these is in quarantine.
        else f"INSERT INTO {quarantine} BY NAME {quarantined}",
        account=f"INSERT INTO {ledger} BY NAME SELECT *, current_timestamp() AS recorded_at FROM {ACCOUNT}",
        entry_columns=", ".join(f"{column.name} {column.type}" for column in ENTRY_COLUMNS),
        stream=stream_name,
        checkpoint=checkpoint,
        fail=EXPECTATIONS.named(Action.FAIL),
        quarantining=EXPECTATIONS.named(Action.QUARANTINE),
        late=ON_TIME,
        unique=UNIQUE,
        from_quarantine=is_replay,
    )


def _sql(name: str, **given: str) -> str:
    # The bounds of a batch ($lower, $upper) are substituted when they are known.
    return Template((_SQL / f"{name}.sql").read_text()).safe_substitute(given)


@dataclass(frozen=True)
class _Corrections:
    """Whether quarantine has corrected records, and corrected records that were replayed."""

    exist: bool = False
    replayed: bool = False


def _corrections(spark: Spark) -> _Corrections:
    corrected = spark.table(QUARANTINE).where("corrected IS NOT NULL")
    (row,) = spark.rows(corrected.selectExpr("count(*) > 0 AS exist", "count(replayed_at) > 0 AS replayed"))
    return _Corrections(row["exist"], row["replayed"])


def ensure_tables(spark: Spark) -> list[TableDeclaration]:
    """Create what is missing of bronze's table and the stream's own; return those of the latter that were created."""
    spark.ensure_table(TRACKER_EVENTS_RAW)
    return [table for table in TABLES if spark.ensure_table(table)]


def stream(
    spark: Spark, *, max_files: int = MAX_FILES, full_refresh: bool = False, options: StreamOptions | None = None
) -> Account:
    """Bring silver up to date with bronze, as `ValidatedStream.run` does. Corrections that were replayed survive a rebuild.

    Raises:
        As `ValidatedStream.run`.
    """
    return ValidatedStream(
        spark,
        TRACKER_EVENTS_RAW,
        TRACKER_EVENTS,
        STREAM,
        partial(batch_statements, spark),
        stopped,
        partial(_refuse_loss, spark),
        partial(_empty, spark),
    ).run(max_files, full_refresh=full_refresh, options=options or StreamOptions())


def replay(spark: Spark) -> Account:
    """Replay the quarantine, as `QuarantineReplay.run` does.

    Raises:
        As `QuarantineReplay.run`.
    """
    statements = partial(batch_statements, spark, is_replay=True)
    return QuarantineReplay(spark, TRACKER_EVENTS, QUARANTINE, REPLAY, statements, stopped).run()


def stopped(error_text: str) -> StreamFailed | ExpectationFailed:
    """Return the error for the text of a batch's error."""
    return batch_error(error_text, STREAM, EXPECTATIONS)


def _refuse_loss(spark: Spark) -> None:
    """Refuse a rebuild of silver that would lose records.

    Raises:
        ResetRefused: bronze no longer has all that silver was computed from.
    """
    silver, quarantine, bronze = (spark.sql_name(table) for table in (TRACKER_EVENTS, QUARANTINE, TRACKER_EVENTS_RAW))
    query = _sql("tracker_events_not_in_bronze", silver=silver, quarantine=quarantine, bronze=bronze)
    if missing := spark.rows(spark.sql(query)):
        lost = sum(row["records"] for row in missing)
        shown = ", ".join("{topic}/{partition}: {records:,} from {first} to {last}".format(**row) for row in missing[:5])
        raise ResetRefused(
            f"{silver} is not rebuilt: {lost:,} records that it was computed from are no longer in "
            f"{bronze}, which was refreshed or created again ({shown}). Restore them into it from an earlier version "
            "(docs/expectations.md) and start the stream again; or, to accept the loss, materialize it with "
            "full_refresh: true."
        )


def _empty(spark: Spark) -> None:
    """Delete what is computed from bronze; corrections are not."""
    streams = ", ".join(map(literal, (STREAM, REPLAY)))
    deletes = (
        (TRACKER_EVENTS, "true"),
        (QUARANTINE, "corrected IS NULL"),
        (STREAM_BATCHES, f"stream IN ({streams})"),
    )
    for table, rows in deletes:
        delete = f"DELETE FROM {spark.sql_name(table)} WHERE {rows}"
        spark.commit(spark.full_name(table), lambda delete=delete: spark.rows(spark.sql(delete)))
