"""Records in files that another service lands from a stream: Kafka Connect's sinks, Kinesis Firehose, `kcat -J`.

A file is read whole, in one micro-batch and so in one commit. Its path in the folder is the topic, and the number of the
line the offset: a file that was read is known by its name, even in another folder.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import RECORDS, StreamOptions, StreamRun, failure
from ratify_lakehouse.errors import FileUnreadable, NotConfigured, SourceNotConfigured, StreamError
from ratify_lakehouse.ingest.records import event_time
from ratify_lakehouse.ingest.records.record_source import (
    RecordSource,
    SourceOptions,
    SourceProgress,
    SourceStatus,
    StreamTarget,
    refusal_text,
)
from ratify_lakehouse.landing.file_listing import Listed
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.sql.spark_sql import literal
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED = "files listed"
"""Metadata key: a digest of the names that were in the folder when the run began."""

_SQL = Path(__file__).parent
_TOPIC = "files:"
_UNFINISHED = r"[.](tmp|crc|part)$"
_TOO_LARGE = "RATIFY_FILE_TOO_LARGE"
# Characters that Spark's source reads as a pattern.
_GLOB = re.compile(r"[][*?{}\\]")
_SCHEME = r"^[A-Za-z0-9+.-]+:/*"
# Spark ignores a file that is so much older than the newest one. A file that was copied with its date may have any age.
_MAX_AGE = "36500d"
_SHOWN = 5


@dataclass(frozen=True)
class Listing:
    """The files in a folder, in bounded size: their number, and a digest of their names."""

    files: int
    digest: str


class FileSource(RecordSource):
    """A folder, local or in an object store that Spark and this machine both reach.

    Attributes:
        events: How its files are read.
        zone: The folder.
    """

    def __init__(self, config: SourceOptions) -> None:
        """Raise NotConfigured where the settings name no folder, or one that Spark would read as a pattern."""
        self._config = config
        self.events = config.events
        if not self.events.files:
            raise SourceNotConfigured("The source is files: set EVENTS_FILES to the folder or URL where they land.")
        folder = self.events.files.rstrip("/")
        self._folder = folder if "://" in folder else str(Path(folder).expanduser().resolve())
        if _GLOB.search(self._folder):
            raise NotConfigured(f"{self._folder}: Spark reads []{{}}*?\\ as a pattern. Give the folder another name.")
        self.zone = LandingZone(url=self._folder, setting="EVENTS_FILES")
        # Another folder is another stream.
        self.checkpoint = f"files-{hashlib.sha256(self._folder.encode()).hexdigest()[:12]}"

    def status(self, reported: Mapping[str, Any]) -> SourceStatus:
        listing = self._listing()
        if not listing.files:
            return SourceStatus(False, f"No files in {self._folder}.")
        if reported.get(LISTED) == listing.digest:
            return SourceStatus(False, f"Nothing new in {self._folder}.")
        return SourceStatus(True, f"{counted(listing.files, 'file')} in {self._folder}, not the same as at the last run")

    def look(self) -> None:
        self._seen = self._listing()

    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        query = f"SELECT DISTINCT substring(topic, {len(_TOPIC) + 1}) AS path FROM {{raw}} WHERE {_ours()}"
        loaded = {row["path"] for row in spark.rows(spark.sql(query, raw=spark.table(table)))}
        missing = sorted(loaded.difference(file.path for file in self.files()))
        shown = ", ".join(missing[:_SHOWN]) + (f", and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else "")
        lost = f"{len(missing):,} of the {len(loaded):,} files that it holds are no longer in {self._folder}"
        return refusal_text(spark.full_name(table), f"{lost}: {shown}" if missing else lost, "the folder")

    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        config, settings = self._config, self.events
        reader_options = {
            "wholetext": "true",
            "recursiveFileLookup": "true",
            "maxFilesPerTrigger": str(config.max_files),
            "maxFileAge": _MAX_AGE,
        }
        given = {
            "root": literal(re.sub(_SCHEME, "", self._folder).lstrip("/")),
            "scheme": literal(_SCHEME),
            "topic": literal(_TOPIC),
            "key": _field(settings.key),
            "time": _field(settings.time),
            "parsed_time": event_time.from_text("given_time"),
        }
        lines = Template((_SQL / "file_lines.sql").read_text()).substitute(given)
        records = Template((_SQL / f"file_{settings.format}.sql").read_text()).substitute(given, lines=f"(\n{lines})")

        def read() -> "DataFrame":
            from pyspark.sql.functions import count, lit

            session = target.spark.session
            # The checkpoint may be new, or older than that of another folder from which the same names were read.
            known = target.snapshot(f"SELECT DISTINCT topic FROM {{raw}} WHERE {_ours()}", refresh=True)
            url = self._folder if "://" in self._folder else f"file://{self._folder}"
            files = session.readStream.format("text").schema("value string").options(**reader_options).load(url)
            # Spark evaluates both on the listing, before it opens a file.
            files = files.where(f"NOT _metadata.file_path RLIKE {literal(_UNFINISHED)}").where(
                _small(settings.max_file_bytes)
            )
            files = files.selectExpr("value", "_metadata.file_path AS path", "_metadata.file_modification_time AS modified")
            # To Spark each file is one row.
            return target.spark.sql(records, files=files, known=known).observe(RECORDS, count(lit(1)).alias("n"))

        return read

    def explained(self, error_text: str) -> StreamError:
        if found := re.search(rf"{_TOO_LARGE} (\w+:/.*?)(?: SQLSTATE|$)", error_text, re.MULTILINE):
            return FileUnreadable(
                f"{found[1]} is larger than EVENTS_MAX_FILE_BYTES ({self.events.max_file_bytes:,}; a compressed one "
                "counts ten times): a whole file has to fit in memory. Split it, or raise the bound, and start it again."
            )
        if found := re.search(r"FAILED_READ_FILE\S* .*?(\w+:/\S+?)[.]?\s", error_text):
            return FileUnreadable(
                f"{found[1]} cannot be read: it is damaged, incomplete, or missing. Replace it, or remove it from the "
                "folder, and start the stream again: it resumes."
            )
        return failure(error_text)

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        return SourceProgress(more={"files": self._seen.files, LISTED: self._seen.digest})

    def files(self) -> Iterator[Listed]:
        """Yield the files that are read: those that are not empty.

        Raises:
            LandingUnavailable: the folder cannot be listed.
        """
        unfinished = re.compile(_UNFINISHED)
        for page in self.zone.pages():
            yield from (file for file in page if file.size and not unfinished.search(file.path))

    def _listing(self) -> Listing:
        digest, number = hashlib.sha256(), 0
        for number, file in enumerate(self.files(), 1):  # noqa: B007 the last one is their count
            digest.update(file.path.encode() + b"\n")
        return Listing(number, digest.hexdigest()[:16])


def _ours() -> str:
    return f"startswith(topic, {literal(_TOPIC)})"


def json_path(field: str) -> str:
    """Return the path of a field of a value in JSON, which is given by its name or its path."""
    return field if field.startswith("$") else f"$.{field}"


def _field(path: str) -> str:
    """The expression for a field of the value in JSON, by its name or path; NULL where none is named."""
    if not path:
        return "CAST(NULL AS STRING)"
    return f"get_json_object(text, {literal(json_path(path))})"


def _small(bound: int) -> str:
    size = "_metadata.file_size * IF(_metadata.file_path RLIKE '[.](gz|bz2)$', 10, 1)"
    return f"IF({size} > {bound}, raise_error(concat('{_TOO_LARGE} ', _metadata.file_path)) IS NULL, true)"
