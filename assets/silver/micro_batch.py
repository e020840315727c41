"""What is done with one micro-batch: judge its records once, then write each of three tables, each write idempotent.

Over Spark Connect foreachBatch runs its function in a Python process of the server, which knows pyspark and perhaps nothing
of this package. So the function below is closed over plain values, imports nothing of ours, and tells what went wrong by the
text of an error, which is all that comes back. The same function works in a classic session, and on a DataFrame by hand.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXPECTATION_FAILED = "[RATIFY_EXPECTATION_FAILED]"
"""What the text of the error begins with that stops a batch; a JSON object follows, on the same line."""

BATCH, JUDGED, ACCOUNT = "ratify_batch", "ratify_judged", "ratify_account"
"""Views of a batch: its records as they came, its rows as they were judged, and its line in the book."""


@dataclass(frozen=True)
class Work:
    """SQL to run on each batch, and how to account for it.

    Attributes:
        app_id: Marks the writes of this stream in its tables; with the number of a batch, Delta makes each of them once.
        target: Full name of the table that `merge` writes.
        judge: Query over the view BATCH that gives judged rows.
        count: Query over the view JUDGED that counts them, in one row, with `lower` and `upper`: bounds, in microseconds, of
            the kept rows.
        merge: MERGE of the kept rows of JUDGED; `$lower` and `$upper` stand for the bounds.
        quarantine: MERGE of those in quarantine.
        account: INSERT of the view ACCOUNT.
        stream: Name of the stream in the book.
        checkpoint: Name of its checkpoint.
        fail: Expectations that stop the batch.
        set_aside: Expectations that send a row to quarantine.
        late: The expectation that late records fail.
        unique: The expectation that duplicates fail.
        from_quarantine: The records were in quarantine, and counted there, before.
    """

    app_id: str
    target: str
    judge: str
    count: str
    merge: str
    quarantine: str
    account: str
    stream: str
    checkpoint: str
    fail: tuple[str, ...]
    set_aside: tuple[str, ...]
    late: str
    unique: str
    from_quarantine: bool = False


def batch_function(work: Work) -> "Callable[[DataFrame, int], None]":
    """Return the function for foreachBatch."""
    given: Mapping[str, Any] = asdict(work)
    failed_mark = EXPECTATION_FAILED
    views = (BATCH, JUDGED, ACCOUNT)
    conf = "spark.databricks.delta."
    attempts = 5

    def write(frame: "DataFrame", batch_id: int) -> None:  # noqa: C901 all that it calls has to be inside of it
        import json
        import time

        session = frame.sparkSession
        mark = f"{given['app_id']}:{batch_id}"

        def run(text: str) -> list[Any]:
            # Repeating is safe: either nothing was committed, or Delta knows the mark.
            for attempt in range(attempts):
                try:
                    return session.sql(text).collect()
                except Exception as error:
                    if "DELTA_CONCURRENT" not in str(error) or attempt == attempts - 1:
                        raise
                    time.sleep(0.5 * 2**attempt)
            return []

        def inserted_before() -> int:
            """Rows that this batch inserted in a run that died: Delta has just skipped the MERGE."""
            history = session.sql(f"DESCRIBE HISTORY {given['target']}").where(f"userMetadata = '{mark}'").collect()
            return int(history[0]["operationMetrics"]["numTargetRowsInserted"]) if history else 0

        def merge(found: dict[str, Any]) -> int:
            text = given["merge"].replace("$lower", str(found["lower"])).replace("$upper", str(found["upper"]))
            done = run(text)
            return int(done[0]["num_inserted_rows"]) if done and done[0]["num_inserted_rows"] else inserted_before()

        frame.createOrReplaceTempView(views[0])
        judged = session.sql(given["judge"]).persist()
        try:
            judged.createOrReplaceTempView(views[1])
            found = session.sql(given["count"]).collect()[0].asDict(recursive=True)
            if any(found["failed"][name] for name in given["fail"]):
                raise RuntimeError(f"{failed_mark} {json.dumps(found)}")
            decided = found["decided"]
            kept = found["rows"] - sum(decided.values())
            aside = sum(decided[name] for name in given["set_aside"])
            marks = {"write.txnAppId": given["app_id"], "write.txnVersion": batch_id, "commitInfo.userMetadata": mark}
            for key, value in marks.items():
                session.conf.set(conf + key, value)
            try:
                inserted = merge(found) if kept else 0
                if aside:
                    run(given["quarantine"])
                late, beaten = decided[given["late"]], decided[given["unique"]]
                again = given["from_quarantine"]
                line = {
                    "stream": given["stream"],
                    "checkpoint": given["checkpoint"],
                    "batch_id": batch_id,
                    "records": 0 if again else found["rows"],
                    "accepted": inserted,
                    "dropped": sum(decided.values()) - aside - late - beaten,
                    "quarantined": aside - (found["rows"] if again else 0),
                    "late": late,
                    "duplicates": beaten + kept - inserted,
                    "failed": found["failed"],
                    "decided": decided,
                    "examples": found["examples"],
                }
                shape = (
                    "stream string, checkpoint string, batch_id bigint, records bigint, accepted bigint, dropped bigint, "
                    "quarantined bigint, late bigint, duplicates bigint, failed map<string,bigint>, "
                    "decided map<string,bigint>, examples map<string,array<string>>"
                )
                session.createDataFrame([line], shape).createOrReplaceTempView(views[2])
                run(given["account"])
            finally:
                for key in marks:
                    session.conf.unset(conf + key)
        finally:
            judged.unpersist()

    return write


def counted_in(error_text: str) -> dict[str, Any] | None:
    """Return what the batch had counted that an expectation stopped, from the text of the error; None for other errors."""
    _, mark, rest = error_text.partition(EXPECTATION_FAILED)
    return json.JSONDecoder().raw_decode(rest.lstrip())[0] if mark else None
