"""What a follower of a change data feed reads next: the changed rows, each with its images before and after the change."""

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from resources.delta.table_log import TableLog
from resources.errors import ChangesNotRecorded, QueryMismatch
from resources.spark.change_feed import read_changes
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JSON_OPTIONS = "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", 'timeZone', 'UTC')"
"""Options of Spark's to_json."""

_PAIRED = Path(__file__).with_name("paired_changes.sql")
_DELTA = ("_change_type", "_commit_version", "_commit_timestamp")


def opened_log(spark: Spark, full_name: str) -> TableLog:
    """Return the log of a table that is followed, as of its latest version.

    Raises:
        ChangesNotRecorded: this process cannot read it.
        TableMissing.
    """
    log = TableLog.opened(spark.catalog, full_name)
    if log is None:
        raise ChangesNotRecorded(f"The log of {full_name} cannot be read here, so that it is not known who changed it.")
    return log


def next_version(log: TableLog, full_name: str, follower: str, last: int | None, from_version: int) -> int:
    """Return the first version of a table that its follower does not have; it may be one that does not exist yet.

    Args:
        log: The table's.
        full_name: The table.
        follower: What follows it, for messages.
        last: The version up to which the follower has its changes; None if it has none.
        from_version: The version to begin with, or to go on from where the feed of earlier ones is lost.

    Raises:
        ChangesNotRecorded: the feed lacks versions that the follower does not have.
    """
    since = log.feed_since()
    if since is None:
        # Its message says what to do.
        return log.recorded_range(None, None)[0]
    if last is None:
        return max(since, from_version)
    if last + 1 < since and from_version < since:
        raise ChangesNotRecorded(
            f"{follower} has the changes of {full_name} up to version {last}, and the feed has them since "
            f"version {since} only. To go on without those between, set `from_version: {since}` in its defs.yaml."
        )
    return max(last + 1, since)


def paired_changes(spark: Spark, full_name: str, keys: Sequence[str], first: int, last: int, follower: str) -> "DataFrame":
    """Return the changed rows of a range of versions; the images of an update are paired by the keys.

    Returns:
        The columns `version` (bigint), `number` (int: which of the changes of that version to rows with these keys),
        `committed_at` (timestamp), `change` (insert, update or delete), and `key`, `before` and `after` (JSON).

    Raises:
        QueryMismatch: the table has no such key.
        ChangesNotRecorded, TableMissing.
    """
    changes = read_changes(spark, full_name, first, last)
    columns = [name for name in changes.columns if name not in _DELTA]
    if missing := [key for key in keys if key not in columns]:
        raise QueryMismatch(f"{full_name} has no column {missing[0]}, which is a key of it by {follower}.")
    text = Template(_PAIRED.read_text()).substitute(
        keys=", ".join(map(identifier, keys)), columns=", ".join(map(identifier, columns)), options=JSON_OPTIONS
    )
    return spark.query(text, changes=changes)
