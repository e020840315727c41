"""What a follower of a change data feed reads next: the changed rows, each with its images before and after the change."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Protocol

from ratify_lakehouse.delta.feed_parts import feed_parts
from ratify_lakehouse.delta.snapshot import committed_at
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.change_feed import read_changes
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import first_line
from ratify_lakehouse.errors import ChangesNotRecorded, CommitConflict, LogUnreadable, QueryMismatch, UnsafeTable
from ratify_lakehouse.sql.spark_sql import at_version, identifier, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\", 'timeZone', 'UTC')"
)
"""Options of Spark's to_json."""

MOST_COMPARED = 100
"""So many versions of a range may be compared, each of which reads the table twice."""

_PAIRED, _OF_FEED, _COMPARED = (
    Path(__file__).with_name(f"{name}.sql").read_text() for name in ("paired_changes", "feed_images", "compared_images")
)
_DELTA = ("_change_type", "_commit_version", "_commit_timestamp")
# What Delta says of a schema that it cannot read all of a range with, and Spark of a file that is gone.
_REFUSED = ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",)
_GONE = ("FILE_NOT_FOUND", "FILE_NOT_EXIST")
# What it says of a version that the log has lost: the one before the first that is compared.
_LOST = "DELTA_VERSION_NOT_FOUND"


def opened_log(spark: Spark, full_name: str) -> TableLog:
    """Return the log of a table that is followed, as of its latest version.

    Raises:
        ChangesNotRecorded: this process cannot read it.
        TableMissing, StorageUnavailable.
    """
    try:
        return TableLog.read(spark.catalog, full_name)
    except (LogUnreadable, UnsafeTable) as error:
        raise ChangesNotRecorded(f"It is unknown who changed {full_name}: {error}") from error


class FollowedVersion(Protocol):
    """Up to where a follower has the changes of a table."""

    @property
    def table_id(self) -> str:
        """The id that the table had then: it gets another one where it is dropped and created again."""
        ...

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def from_version(self) -> int:
        """What the declaration of the follower had as `from_version` then."""
        ...


def given_version(last: FollowedVersion | None, from_version: int) -> int:
    """Return what `from_version` still asks for: nothing, once a position was written under it.

    It is the version of one table, and the declaration may have it long after that table was dropped and created again.
    """
    return 0 if last and last.from_version == from_version else from_version


def next_version(log: TableLog, follower: str, last: FollowedVersion | None, from_version: int) -> int:
    """Return the first version of a table that its follower does not have; it may be one that does not exist yet.

    Args:
        log: The table's.
        follower: What follows it, for messages.
        last: The version up to which the follower has its changes, or those of a table of that name before; None if neither.
        from_version: The version to begin with, or to go on from: those between are left out. See `given_version`.

    Raises:
        ChangesNotRecorded: the feed lacks versions that the follower does not have; or there is no such version yet.
    """
    since = log.feed_since()
    if since is None:
        # Its message says what to do.
        return log.recorded_range(None, None)[0]
    if last and last.table_id != log.table_id:
        # What the user says of a version of a table that was dropped, says nothing of this one.
        return since
    if from_version > log.version + 1:
        raise ChangesNotRecorded(
            f"{follower} is to continue from version {from_version} of {log.full_name}, whose latest version is "
            f"{log.version}: leave out `from_version` in its defs.yaml, or set it to {log.version + 1} at most."
        )
    if last is None:
        return max(since, from_version)
    if last.version + 1 < since and from_version < since:
        raise ChangesNotRecorded(
            f"{follower} has the changes of {log.full_name} up to version {last.version}, and the feed has them since "
            f"version {since} only. {_left_out(since)}"
        )
    return max(last.version + 1, since, from_version)


def paired_changes(spark: Spark, log: TableLog, keys: Sequence[str], first: int, follower: str) -> "DataFrame":
    """Return the changed rows of the versions from `first` on; the images of an update are paired by the keys.

    An image has the columns that the table had then.

    Returns:
        The columns `version` (bigint), `number` (int: which of the changes of that version to rows with these keys),
        `committed_at` (timestamp), `change` (insert, update or delete), and `key`, `before` and `after` (JSON).

    Raises:
        QueryMismatch: the table has, or had, no such key.
        LogUnreadable: the log has lost one of the versions meanwhile.
        ChangesNotRecorded, TableMissing.
    """
    parts = feed_parts(log, first, log.version)
    if len(parts.compared) > MOST_COMPARED:
        raise ChangesNotRecorded(
            f"The schema of {log.full_name} was changed in version {parts.compared[-1]} or later, so the feed of earlier "
            f"versions cannot be read, and {len(parts.compared)} of them changed rows since version {first}: more than "
            f"the {MOST_COMPARED} that {follower} compares. {_left_out(parts.compared[-1])}"
        )
    # The newest first: an error says how to go on, which is after the last that cannot be read.
    pieces = [*((begin, end, False) for begin, end in parts.ranges), *((each, each, True) for each in parts.compared)]
    images = [
        _compared_images(spark, log, keys, end, follower)
        if compared
        else _feed_images(spark, log, keys, begin, end, follower)
        for begin, end, compared in sorted(pieces, reverse=True)
    ]
    frames = {f"part{number}": frame for number, frame in enumerate(images)}
    every = " UNION ALL ".join(f"SELECT * FROM {{{name}}}" for name in frames)
    return spark.query(_PAIRED, images=spark.query(every, **frames))


@contextmanager
def readable(spark: Spark, log: TableLog, first: int, follower: str) -> Generator[None]:
    """Check that the block has read the changes of the table whose log is given; translate what Spark says if it cannot.

    Raises:
        CommitConflict: the table was dropped and created again meanwhile; or they cannot be read, and it has a newer
            version, in which it may have been given another schema.
        ChangesNotRecorded: they cannot be read; the error says from which version on they can.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text = str(error)
        refused, gone = (any(sign in text for sign in signs) for signs in (_REFUSED, _GONE))
        if not refused and not gone and _LOST not in text:
            raise
        if spark.catalog.version(log.full_name) != log.version:
            raise CommitConflict(f"{log.full_name} was changed while {follower} read its changes.") from error
        last = log.version if refused else _last_without_files(log, first) if gone else first
        if last is None:
            raise
        raise ChangesNotRecorded(
            f"The changes of {log.full_name} in its versions {first} to {last}, which {follower} does not have yet, "
            f"cannot be read: {first_line(text)} {_left_out(last + 1)}"
        ) from error
    # Spark reads a table by its name.
    if spark.catalog.load_table(log.full_name)["metadata"]["table-uuid"] != log.table_id:
        raise CommitConflict(f"{log.full_name} was dropped and created again while {follower} read its changes.")


def _last_without_files(log: TableLog, first: int) -> int | None:
    """The newest version, of those from one on, whose changes are lost with its files; None if all of them are there."""
    compared = feed_parts(log, first, log.version).compared
    for version in range(log.version, first - 1, -1):
        if version in compared or not log.has_files_of_changes(version):
            return version
    return None


def _left_out(version: int) -> str:
    return (
        f"To continue without the changes in between, which are then lost, set `from_version: {version}` in its defs.yaml."
    )


def _feed_images(spark: Spark, log: TableLog, keys: Sequence[str], first: int, last: int, follower: str) -> "DataFrame":
    """The images of the rows that the feed has in a range of versions."""
    rows = read_changes(spark, log.full_name, first, last)
    names = _image_columns(log, rows, keys, last, last + 1, follower)
    return spark.query(Template(_OF_FEED).substitute(names), rows=rows)


def _compared_images(spark: Spark, log: TableLog, keys: Sequence[str], version: int, follower: str) -> "DataFrame":
    """The images of the rows by which a version differs from the one before."""

    def at(number: int) -> "DataFrame":
        rows = spark.query(f"SELECT * FROM {at_version(table_name(log.full_name), number)}")
        names = _image_columns(log, rows, keys, number, version + 1, follower)
        images = "SELECT to_json(struct($keys), $options) AS key, to_json(struct($columns), $options) AS row FROM {rows}"
        return spark.query(Template(images).substitute(names), rows=rows)

    after = at(version)
    before = at(version - 1) if version else spark.query("SELECT * FROM {after} WHERE false", after=after)
    text = Template(_COMPARED).substitute(version=version, committed_ms=int(committed_at(log.actions(version))))
    return spark.query(text, before=before, after=after)


def _image_columns(
    log: TableLog, rows: "DataFrame", keys: Sequence[str], version: int, next_version: int, follower: str
) -> Mapping[str, str]:
    """The columns of images, for the text of a query, of the rows as they are in a version."""
    columns = [name for name in rows.columns if name not in _DELTA]
    if missing := [key for key in keys if key not in columns]:
        when, way_on = ("", "") if version == log.version else (f" in version {version}", f" {_left_out(next_version)}")
        raise QueryMismatch(f"{log.full_name} has no column {missing[0]}{when}, which is a key of it by {follower}.{way_on}")
    listed = {"keys": keys, "columns": columns}
    return {**{name: ", ".join(map(identifier, each)) for name, each in listed.items()}, "options": JSON_OPTIONS}
