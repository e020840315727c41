"""The ledger of streams: what became of the records of each micro-batch of a stream with expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratify_lakehouse.components.expectations.validation import ValidationResult, total
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.spark_sql import literal

STREAM_BATCHES = TableDeclaration(
    layer="ops",
    name="stream_batches",
    columns=(
        Column("stream", "string", "Table that the stream writes, as schema.table; with `.replay` for a replay into it"),
        Column("checkpoint", "string", "Name of the stream's checkpoint; a rebuild begins a new one"),
        Column("batch_id", "bigint"),
        Column("records", "bigint", "Read for the first time; 0 for a replay"),
        Column("accepted", "bigint", "Rows that the batch added to the table"),
        Column("dropped", "bigint", "Dropped by an expectation"),
        Column("quarantined", "bigint", "Added to quarantine; less than 0 where a replay took records out"),
        Column("late", "bigint", "Dropped because they came too late"),
        Column("duplicates", "bigint", "Dropped for another record with the same key"),
        Column("failed", "map<string,bigint>", "Records that fail each expectation; one may fail several"),
        Column("decided", "map<string,bigint>", "Records decided by each expectation"),
        Column("examples", "map<string,array<string>>", "Some of the records that fail each expectation"),
        Column("recorded_at", "timestamp", "When the entry was written (UTC)"),
    ),
    comment="The ledger of streams: what became of the records of each micro-batch",
    writer=Engine.SPARK,
    operations=frozenset({"WRITE", "DELETE"}),
)

ENTRY_COLUMNS = STREAM_BATCHES.columns[:-1]
"""The columns that a batch fills; the last one is the time at which it does."""

COUNTS = ("records", "accepted", "dropped", "quarantined", "late", "duplicates")
"""The columns whose sums account for every record."""


@dataclass(frozen=True)
class Account:
    """What became of the records of some batches.

    Attributes:
        numbers: By `COUNTS`.
        found: What the expectations found.
        run: Numbers of the stream itself; a replay has none.
    """

    numbers: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    found: ValidationResult = field(default_factory=ValidationResult)
    run: Mapping[str, float] = field(default_factory=dict[str, float])


def account(spark: Spark, batches: str) -> Account:
    """Return what became of the records of the batches for which the SQL condition `batches` holds."""
    ledger = spark.table(STREAM_BATCHES).where(batches).orderBy("batch_id")
    rows = spark.rows(ledger.selectExpr(*COUNTS, "failed", "decided", "examples"))
    found = total(ValidationResult(row["records"], row["failed"], row["decided"], row["examples"]) for row in rows)
    return Account({name: sum(row[name] for row in rows) for name in COUNTS}, found)


def last_batch(spark: Spark, stream: str, checkpoint: str) -> int:
    """Return the number of a stream's last batch in the ledger by a checkpoint; -1 if there is none."""
    ledger = spark.table(STREAM_BATCHES).where(f"stream = {literal(stream)} AND checkpoint = {literal(checkpoint)}")
    (row,) = spark.rows(ledger.selectExpr("coalesce(max(batch_id), -1) AS last"))
    return int(row["last"])
