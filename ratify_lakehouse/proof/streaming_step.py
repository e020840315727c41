"""What Structured Streaming does in the proof: a stream that is stopped and resumes from its checkpoint."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import SparkUnavailable
from ratify_lakehouse.proof.proof_ledger import ProofEntry
from ratify_lakehouse.proof.proof_rows import STREAMED
from ratify_lakehouse.proof.proof_tables import ORDERS_STREAM
from ratify_lakehouse.proof.row_digest import Digest, DigestPart, by_spark
from ratify_lakehouse.proof.spark_steps import name_of
from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_SECOND = 50
_BATCHES = 2
_PATIENCE_S = 180
OPERATION = "STREAMING UPDATE"


def stream(spark: Spark) -> ProofEntry:
    """Create the table again, stream into it, stop, and resume from the checkpoint; return what it has to contain then."""
    table = name_of(spark, ORDERS_STREAM)
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.ensure_table(ORDERS_STREAM)
    checkpoint = _new_checkpoint()
    first = _run(spark, table, checkpoint, after_batch=_BATCHES)
    last = _run(spark, table, checkpoint, after_batch=first + _BATCHES)
    rows = spark.count(ORDERS_STREAM)
    numbers = f"(SELECT {', '.join(_columns('id'))} FROM range({rows}))"
    (digest,) = by_spark(spark, [DigestPart.of(ORDERS_STREAM, numbers, STREAMED)])
    shutil.rmtree(checkpoint, ignore_errors=True)
    version = spark.catalog.version(table)
    if version < last:
        raise SparkUnavailable(f"The stream reports that it has ended batch {last}, but {table} is at version {version}.")
    return ProofEntry("streaming", Engine.SPARK, ORDERS_STREAM.name, OPERATION, version, STREAMED, digest)


def each_batch_once(spark: Spark, expected: Digest) -> Finding:
    """Check whether each micro-batch is one commit, and each row of the source is in the table once."""
    table = name_of(spark, ORDERS_STREAM)
    commits = [commit for commit in spark.history(table) if commit.operation == OPERATION]
    epochs = sorted(int(commit.parameters["epochId"]) for commit in commits)
    (found,) = by_spark(spark, [DigestPart.of(ORDERS_STREAM, table)])
    numbers = {"commits": len(commits), "batches": len(set(epochs)), "rows": found.rows}
    if epochs != list(range(len(epochs))):
        return Finding(False, f"The commits are of the batches {epochs}, not of each one once.", numbers)
    if not found.rows or found != expected:
        return Finding(False, "Rows of the stream are missing or duplicated.", numbers)
    return Finding(True, f"{len(epochs)} micro-batches, each in one commit; {found.rows:,} rows, each once.", numbers)


def _new_checkpoint() -> Path:
    """A folder on the disk of Spark, which is this machine's where the embedded one is used."""
    folder = Settings().home / "cross_engine" / "checkpoints"
    # Those of streams that died, into tables that were dropped.
    shutil.rmtree(folder, ignore_errors=True)
    return folder / uuid4().hex


def _run(spark: Spark, table: str, checkpoint: Path, after_batch: int) -> int:
    """Let the stream run until it has ended a batch, and stop it; return the number of the last batch that it reports."""
    source: DataFrame = spark.session.readStream.format("rate").option("rowsPerSecond", _ROWS_PER_SECOND).load()
    query = (
        source.selectExpr(*_columns("value"))
        .writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .toTable(table)
    )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while (done := _last_batch(query.lastProgress)) < after_batch:
            if not query.isActive:
                raise SparkUnavailable(f"The stream into {table} ended by itself: {query.exception()}")
            if time.monotonic() > deadline:
                raise SparkUnavailable(f"The stream into {table} did not end batch {after_batch} within {_PATIENCE_S} s.")
            time.sleep(0.2)
    finally:
        query.stop()
    return done


def _last_batch(progress: object) -> int:
    return progress["batchId"] if progress else -1  # type: ignore[index]


def _columns(value: str) -> list[str]:
    """The columns of an order from the number of its row."""
    return [
        f"CAST({STREAMED.first} + {value} AS BIGINT) AS o_orderkey",
        f"CAST(1 + {value} % 1500 AS BIGINT) AS o_custkey",
        "'O' AS o_orderstatus",
        f"CAST(({value} * 7) % 1000 AS DECIMAL(15, 2)) AS o_totalprice",
        "DATE '2026-04-23' AS o_orderdate",
        "'3-MEDIUM' AS o_orderpriority",
        "'Clerk#external-spark-stream' AS o_clerk",
        "0 AS o_shippriority",
        f"concat('row ', {value}) AS o_comment",
    ]
