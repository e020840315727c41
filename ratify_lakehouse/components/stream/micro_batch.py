"""What is done with one micro-batch: validate its records once, then write each of three tables, each write idempotent.

Over Spark Connect, foreachBatch runs its function in a Python process of the server, which has pyspark and perhaps nothing
of this package. So the function is closed over plain values, imports nothing of ours, and reports a failure by the text of
an error, which is all that comes back. The same function works in a classic session, and on a DataFrame directly.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.engines.spark.spark_errors import CONFLICTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXPECTATION_FAILED = "[RATIFY_EXPECTATION_FAILED]"
"""Marks the error of a batch that an expectation stopped; a JSON object with the counts follows, on the same line."""

BATCH, VALIDATED, ACCOUNT = "ratify_batch", "ratify_validated", "ratify_account"
"""Views of a batch: its records as they came, its rows as they were validated, and its ledger entry."""


@dataclass(frozen=True)
class BatchStatements:
    """SQL to run on each batch, and how to account for it.

    Attributes:
        app_id: Marks the writes of this stream in its tables; by it and the number of a batch, Delta makes each write once.
        target: Full name, as SQL has it, of the table that `merge` writes.
        validate: Query over the view BATCH that gives validated rows.
        count: Query over the view VALIDATED that counts them, in one row; with `lower` and `upper`, bounds of the accepted
            rows in microseconds, where `merge` has bounds.
        merge: MERGE of the accepted rows of VALIDATED; `$lower` and `$upper`, if it has them, stand for the bounds.
        quarantine: INSERT or MERGE of the quarantined rows.
        account: INSERT of the view ACCOUNT.
        entry_columns: Columns of that view, with their types.
        stream: Name of the stream in the ledger.
        checkpoint: Name of its checkpoint.
        fail: Expectations that stop the batch.
        quarantining: Expectations that send a row to quarantine.
        late: The expectation that late records fail; empty if none does.
        unique: The expectation that duplicates fail.
        from_quarantine: The records come from quarantine, and were counted before.
    """

    app_id: str
    target: str
    validate: str
    count: str
    merge: str
    quarantine: str
    account: str
    entry_columns: str
    stream: str
    checkpoint: str
    fail: tuple[str, ...]
    quarantining: tuple[str, ...]
    late: str
    unique: str
    from_quarantine: bool = False


def batch_function(statements: BatchStatements) -> "Callable[[DataFrame, int], None]":
    """Return the function for foreachBatch."""
    given: Mapping[str, Any] = asdict(statements)
    run, merge, entry = _statement_runner(), _merging(given), _accounting(given)
    batch, validated, account = BATCH, VALIDATED, ACCOUNT
    failed_mark = EXPECTATION_FAILED
    marks = ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")

    def write(frame: "DataFrame", batch_id: int) -> None:
        import json

        session = frame.sparkSession
        mark = f"{given['app_id']}:{batch_id}"
        frame.createOrReplaceTempView(batch)
        rows = session.sql(given["validate"]).persist()
        try:
            rows.createOrReplaceTempView(validated)
            found = session.sql(given["count"]).collect()[0].asDict(recursive=True)
            if any(found["failed"][name] for name in given["fail"]):
                raise RuntimeError(f"{failed_mark} {json.dumps(found)}")
            for key, value in zip(marks, (given["app_id"], batch_id, mark), strict=True):
                session.conf.set(f"spark.databricks.delta.{key}", value)
            # One after the other: two plans over one view share expressions that are not safe for threads (CreateMap).
            inserted = merge(session, run, found, mark)
            if any(found["decided"][name] for name in given["quarantining"]):
                run(session, given["quarantine"])
            rows_of_entry = [entry(batch_id, found, inserted)]
            session.createDataFrame(rows_of_entry, given["entry_columns"]).createOrReplaceTempView(account)
            run(session, given["account"])
        finally:
            for key in marks:
                session.conf.unset(f"spark.databricks.delta.{key}")
            rows.unpersist()

    return write


def _statement_runner() -> Callable[[Any, str], list[Any]]:
    attempts, conflicts = 5, CONFLICTS

    def run(session: Any, text: str) -> list[Any]:
        import time

        # A retry is safe: either nothing was committed, or Delta knows the mark.
        for attempt in range(attempts):
            try:
                return session.sql(text).collect()
            except Exception as error:
                if attempt == attempts - 1 or not any(name in str(error) for name in conflicts):
                    raise
                time.sleep(0.5 * 2**attempt)
        return []

    return run


def _merging(given: Mapping[str, Any]) -> Callable[[Any, Callable[[Any, str], list[Any]], Mapping[str, Any], str], int]:
    def merge(session: Any, run: Callable[[Any, str], list[Any]], found: Mapping[str, Any], mark: str) -> int:
        """Merge the accepted rows; return how many it inserted, also when an attempt that died did it."""
        if found["rows"] == sum(found["decided"].values()):
            return 0
        text = given["merge"]
        for bound in ("lower", "upper"):
            text = text.replace(f"${bound}", str(found.get(bound)))
        done = run(session, text)
        if done and done[0]["num_inserted_rows"]:
            return int(done[0]["num_inserted_rows"])
        # Nothing was new, or Delta skipped the MERGE because the table has it already.
        history = session.sql(f"DESCRIBE HISTORY {given['target']}").where(f"userMetadata = '{mark}'").collect()
        return int(history[0]["operationMetrics"]["numTargetRowsInserted"]) if history else 0

    return merge


def _accounting(given: Mapping[str, Any]) -> Callable[[int, Mapping[str, Any], int], dict[str, Any]]:
    def entry(batch_id: int, found: Mapping[str, Any], inserted: int) -> dict[str, Any]:
        decided, rows, replayed = found["decided"], found["rows"], given["from_quarantine"]
        accepted = rows - sum(decided.values())
        quarantined = sum(decided[name] for name in given["quarantining"])
        late, superseded = decided.get(given["late"], 0), decided[given["unique"]]
        return {
            "stream": given["stream"],
            "checkpoint": given["checkpoint"],
            "batch_id": batch_id,
            "records": 0 if replayed else rows,
            "accepted": inserted,
            "dropped": rows - accepted - quarantined - late - superseded,
            "quarantined": quarantined - (rows if replayed else 0),
            "late": late,
            "duplicates": superseded + accepted - inserted,
            "failed": found["failed"],
            "decided": decided,
            "examples": found["examples"],
        }

    return entry


def counted_in(error_text: str) -> dict[str, Any] | None:
    """Return the counts of a batch that an expectation stopped, from the text of its error; None for other errors."""
    _, mark, rest = error_text.partition(EXPECTATION_FAILED)
    return json.JSONDecoder().raw_decode(rest.lstrip())[0] if mark else None
