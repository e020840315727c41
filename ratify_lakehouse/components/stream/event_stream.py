"""The stream from records into the table of a query: its SQL, what it writes, and when a rebuild would lose records.

What decides on a record is in the record itself, never in the clock or in how the stream was cut into batches, so that a
rebuild from bronze gives the same rows. Of several records with one key, the last by Kafka's timestamp is in the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from string import Template

from ratify_lakehouse.components.checks.reconciliation import Reconciliation
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.components.sql_table import typed
from ratify_lakehouse.components.stream.micro_batch import ACCOUNT, BATCH, VALIDATED, BatchStatements
from ratify_lakehouse.components.stream.quarantine_replay import QuarantineReplay
from ratify_lakehouse.components.stream.stream_ledger import ENTRY_COLUMNS, STREAM_BATCHES, Account
from ratify_lakehouse.components.stream.validated_stream import MAX_FILES, ValidatedStream, batch_error
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.partition_guard import guarded_value
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.errors import ExpectationFailed, QueryMismatch, ResetRefused, StreamFailed
from ratify_lakehouse.ingest.records.record_source import RECORD
from ratify_lakehouse.sql import duckdb_sql
from ratify_lakehouse.sql.avro_calls import FUNCTION, without_avro
from ratify_lakehouse.sql.spark_sql import identifier, literal
from ratify_lakehouse.sql.table_query import TableQuery

_SQL = Path(__file__).parent
_READABLE = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of a record that a query may read: those that a quarantine keeps."""

_AVRO = """'{"type": "record", "name": "r", "fields": [{"name": "f", "type": ["null", "int"]}]}'"""
_TRIAL = f"SELECT {FUNCTION}(CAST(NULL AS BINARY), {_AVRO}, map('mode', 'PERMISSIVE'))"

IDENTITY = ("topic", "partition", "offset")
LATEST = ("kafka_timestamp", "partition", "offset", "topic")
"""Columns by which the last of several records with one key is the greatest."""
RAW = ("key", "value", "headers")
CORRECTED = "corrected"
"""Column of a quarantine: a value that a replay reads in place of the record's."""
GIVEN = (*IDENTITY, "kafka_timestamp", *RAW)
"""Columns that the query of a stream has to give beside its own."""


@dataclass(frozen=True)
class EventStream:
    """A table whose rows are those of a query over records, its quarantine, and the stream that writes both.

    Attributes:
        records: The table of records, of which only the name counts, and what of a record is personal.
        table: With keys; its columns are some of the query's, and those that say where the record is in Kafka.
        query: Gives one row for each record, with the columns `GIVEN`.
        expectations: Of the query's rows; one of them is unique.
        late: The expectation that late records fail; empty if none does.
    """

    records: TableDeclaration
    table: TableDeclaration
    query: TableQuery
    expectations: Expectations
    late: str = ""

    @property
    def name(self) -> str:
        """Name of the stream in the ledger."""
        return self.table.table_name

    @property
    def replay_name(self) -> str:
        """Name of its replays in the ledger."""
        return f"{self.name}.replay"

    @cached_property
    def quarantine(self) -> TableDeclaration:
        """The table of the records that an expectation quarantines."""
        pii = bool(self.table.personal or self.records.personal)

        def raw(name: str, type_text: str, comment: str = "", *, sent: bool = False) -> Column:
            return Column(name, type_text, comment, (f"{self.records.table_name}.{name}",), pii=pii and sent)

        return TableDeclaration(
            layer=self.table.layer,
            name=f"{self.table.name}_quarantine",
            columns=(
                raw("key", "binary", sent=True),
                raw("value", "binary", "As it came", sent=True),
                raw("headers", "array<struct<key:string,value:binary>>", sent=True),
                raw("topic", "string"),
                raw("partition", "int"),
                raw("offset", "bigint"),
                raw("timestamp", "timestamp", "Kafka's timestamp of the record"),
                Column("reasons", "array<string>", "Names of the expectations that it fails"),
                Column("quarantined_at", "timestamp", "When it was first validated (UTC)"),
                Column(CORRECTED, "binary", "A value that a replay reads in place of `value`", pii=pii),
                Column("replayed_at", "timestamp", "When it left quarantine (UTC); NULL while it is there"),
            ),
            comment=f"Records of {self.table.name} that fail an expectation, with the reasons, to be corrected and replayed",
            writer=Engine.SPARK,
            operations=frozenset({"WRITE", "MERGE", "DELETE", "UPDATE"}),
            owner=self.table.owner,
            keys=IDENTITY,
        )

    @property
    def written(self) -> tuple[TableDeclaration, TableDeclaration]:
        """The table and its quarantine."""
        return self.table, self.quarantine

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """What the stream writes."""
        return (*self.written, STREAM_BATCHES)

    @cached_property
    def shown(self) -> TableDeclaration:
        """The table with the columns of the record that each column is computed from."""
        lineage = self.query.lineage({self.records.table_name: [column.name for column in RECORD]})
        columns = (replace(column, sources=lineage.get(column.name, ())) for column in self.table.columns)
        return replace(self.table, columns=tuple(columns))

    @property
    def reconciliation(self) -> Reconciliation:
        """What counts what became of the records."""
        return Reconciliation(
            _SQL / "stream_reconciled.sql",
            {"bronze": self.records, "silver": self.table, "quarantine": self.quarantine, "ledger": STREAM_BATCHES},
            {
                "keys": ", ".join(map(duckdb_sql.identifier, self.table.keys)),
                "streams": ", ".join(map(duckdb_sql.literal, (self.name, self.replay_name))),
            },
        )

    def ensure_tables(self, spark: Spark) -> list[TableDeclaration]:
        """Create what is missing of the tables that the stream writes; return those that were created."""
        return [table for table in self.tables if spark.ensure_table(table)]

    def parsed_sql(self, spark: Spark, records: str) -> str:
        """Return the query over records: a table, a view, or a query in brackets, with bronze's columns.

        Where this Spark cannot decode Avro, the query gets NULL: such records wait in quarantine for a Spark that can.
        """
        relation = f"(SELECT {', '.join(map(identifier, _READABLE))} FROM {records})"
        text = self.query.resolved(lambda _: relation)
        return text if FUNCTION not in text or _reads_avro(spark) else without_avro(text)

    def batch_statements(self, spark: Spark, checkpoint: str, *, is_replay: bool = False) -> BatchStatements:
        """Return what is run on each batch of the stream, or on the records of a replay."""
        target, quarantine, ledger = (spark.sql_name(table) for table in self.tables)
        stream_name = self.replay_name if is_replay else self.name
        # A replay reads the corrected values itself.
        corrections = _Corrections(exist=True) if is_replay else self._corrections(spark)
        corrected = _sql("stream_corrected", quarantine=quarantine, batch=BATCH)
        records = f"(\n{corrected})" if corrections.replayed else BATCH
        quarantined = _sql("stream_quarantined", validated=VALIDATED, quarantined=self.expectations.quarantined())
        return BatchStatements(
            app_id=f"{stream_name}:{checkpoint}",
            target=target,
            validate=self.expectations.validated(self.parsed_sql(spark, records)),
            count=self.expectations.counted(VALIDATED, f"unix_micros({self._bounded_by})" if self._bounded_by else ""),
            merge=self.merge_sql(target, VALIDATED),
            quarantine=_sql("stream_quarantine_merge", quarantine=quarantine, records=quarantined)
            if corrections.exist
            # A rebuild first deletes the records without a correction: none of these is in quarantine.
            else f"INSERT INTO {quarantine} BY NAME {quarantined}",
            account=f"INSERT INTO {ledger} BY NAME SELECT *, current_timestamp() AS recorded_at FROM {ACCOUNT}",
            entry_columns=", ".join(f"{column.name} {column.type}" for column in ENTRY_COLUMNS),
            stream=stream_name,
            checkpoint=checkpoint,
            fail=self.expectations.named(Action.FAIL),
            quarantining=self.expectations.named(Action.QUARANTINE),
            late=self.late,
            unique=self.expectations.unique.name if self.expectations.unique else "",
            from_quarantine=is_replay,
        )

    def merge_sql(self, target: str, validated: str) -> str:
        """Return the MERGE of accepted rows into a table, with `$lower` and `$upper` where a key is a time."""
        names = [identifier(name) for name in self.table.column_names]
        others = [identifier(name) for name in self.table.column_names if name not in self.table.keys]
        time = self._bounded_by
        return _sql(
            "stream_merge",
            target=target,
            validated=validated,
            columns=", ".join(names),
            selected=", ".join(self._selected(target)),
            same_key=" AND ".join(f"target.{key} <=> source.{key}" for key in map(identifier, self.table.keys)),
            bounded=f"(target.{time} BETWEEN timestamp_micros($lower) AND timestamp_micros($upper) OR target.{time} IS NULL)"
            if time
            else "true",
            updates=", ".join(f"{name} = source.{name}" for name in others),
        )

    def _selected(self, target: str) -> Iterator[str]:
        keys = [name for name in self.table.keys if name not in self.table.personal]
        for name, type_ in self.table.column_types.items():
            partition = name in self.table.layout.partition_by
            guarded = guarded_value(target, name, type_, keys) if partition else ""
            yield f"{guarded} AS {identifier(name)}" if guarded else identifier(name)

    def run(
        self,
        spark: Spark,
        *,
        max_files: int = MAX_FILES,
        full_refresh: bool = False,
        options: StreamOptions | None = None,
    ) -> Account:
        """Bring the table up to date with bronze, as `ValidatedStream.run` does. Replayed corrections survive a rebuild.

        Raises:
            QueryMismatch: the query gives other columns than declared; nothing was written.
            As `ValidatedStream.run`.
        """
        self._check_types(spark)
        return ValidatedStream(
            spark,
            self.records,
            self.table,
            self.name,
            partial(self.batch_statements, spark),
            self.stopped,
            partial(self._refuse_loss, spark),
            partial(self._empty, spark),
        ).run(max_files, full_refresh=full_refresh, options=options or StreamOptions())

    def replay(self, spark: Spark) -> Account:
        """Replay the quarantine, as `QuarantineReplay.run` does.

        Raises:
            As `QuarantineReplay.run`.
        """
        statements = partial(self.batch_statements, spark, is_replay=True)
        return QuarantineReplay(spark, self.table, self.quarantine, self.replay_name, statements, self.stopped).run()

    def stopped(self, error_text: str) -> StreamFailed | ExpectationFailed:
        """Return the error for the text of a batch's error."""
        return batch_error(error_text, self.name, self.expectations)

    @property
    def _bounded_by(self) -> str:
        """A key that is a time, by which Delta finds the files that may have it; empty if none is."""
        times = (column.name for column in self.table.columns if column.type.lower() == "timestamp")
        return next((identifier(name) for name in times if name in self.table.keys), "")

    def _check_types(self, spark: Spark) -> None:
        found = dict(spark.sql(self.parsed_sql(spark, spark.sql_name(self.records))).dtypes)
        if missing := [name for name in (*self.table.column_names, *RAW) if name not in found]:
            raise QueryMismatch(f"{self.name}: the query returns no column {missing[0]!r}, only {', '.join(found)}.")
        for column in self.table.columns:
            typed(self.table, column, found[column.name])

    def _corrections(self, spark: Spark) -> "_Corrections":
        corrected = spark.table(self.quarantine).where("corrected IS NOT NULL")
        (row,) = spark.rows(corrected.selectExpr("count(*) > 0 AS exist", "count(replayed_at) > 0 AS replayed"))
        return _Corrections(row["exist"], row["replayed"])

    def _refuse_loss(self, spark: Spark) -> None:
        """Refuse a rebuild that would lose records.

        Raises:
            ResetRefused: bronze no longer has all that the table was computed from.
        """
        if all(_is_as_created(spark, table) for table in self.written):
            return
        target, quarantine, bronze = (spark.sql_name(table) for table in (*self.written, self.records))
        query = _sql("stream_not_in_bronze", target=target, quarantine=quarantine, bronze=bronze)
        if missing := spark.rows(spark.sql(query)):
            lost = sum(row["records"] for row in missing)
            shown = ", ".join("{topic}/{partition}: {records:,} from {first} to {last}".format(**row) for row in missing[:5])
            raise ResetRefused(
                f"{target} is not rebuilt: {lost:,} records that it was computed from are no longer in "
                f"{bronze}, which was refreshed or created again ({shown}). Restore them into it from an earlier version "
                "(docs/expectations.md) and start the stream again; or, to accept the loss, materialize it with "
                "full_refresh: true."
            )

    def _empty(self, spark: Spark) -> None:
        """Delete what is computed from bronze; corrections are not."""
        streams = ", ".join(map(literal, (self.name, self.replay_name)))
        deletes = (
            (self.table, "true"),
            (self.quarantine, "corrected IS NULL"),
            (STREAM_BATCHES, f"stream IN ({streams})"),
        )
        for table, rows in deletes:
            if _is_as_created(spark, table):
                continue
            delete = f"DELETE FROM {spark.sql_name(table)} WHERE {rows}"
            spark.commit(spark.full_name(table), lambda delete=delete: spark.rows(spark.sql(delete)))


@dataclass(frozen=True)
class _Corrections:
    """Whether quarantine has corrected records, and corrected records that were replayed."""

    exist: bool = False
    replayed: bool = False


def _is_as_created(spark: Spark, table: TableDeclaration) -> bool:
    """Return whether a table has no rows yet, from its log; a statement of Spark needs a second for the same."""
    log = TableLog.opened(spark.catalog, spark.full_name(table))
    return log is not None and log.version == 0 and not any("add" in action for action in log.actions(0))


def _reads_avro(spark: Spark) -> bool:
    try:
        spark.rows(spark.sql(_TRIAL))
    except Exception as error:
        if "AVRO" not in str(error):
            raise
        return False
    return True


def _sql(name: str, **given: str) -> str:
    # The bounds of a batch ($lower, $upper) are substituted when they are known.
    return Template((_SQL / f"{name}.sql").read_text()).safe_substitute(given)
