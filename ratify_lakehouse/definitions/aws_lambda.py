"""An AWS Lambda function that loads what lands: `handler(event, context)`.

The event is what S3 sends when an object was created, directly or through an SQS queue. Each object goes into the bronze
table of the source whose pattern its path matches, exactly once, however often and by however many functions at once its
event is delivered, because the table's own log records which files are loaded.
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any, Protocol

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions.project_tables import sources
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import RatifyError, TerminalError, TransientError
from ratify_lakehouse.ingest.discovery.notifications import BadMessage, Created, created, landing_path
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.file_batches import batches
from ratify_lakehouse.ingest.load.post_load_actions import apply_post_load_actions
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone, matcher
from ratify_lakehouse.settings import Settings

logger = logging.getLogger(__name__)

# Small batches, because a batch that is cut off by the function's timeout is repeated. They also have to fit into /tmp.
_MAX_FILES = 20
_MAX_BYTES = 64 << 20
_DUCKDB_SHARE = 0.25
"""Share of the function's memory. Python, the clients and the extensions need 350 of the smallest size, 512 MiB."""

_MIB_PER_CORE = 1769
"""Memory for which Lambda gives a function one core."""

_IGNORED = "ignored"
_NOT_LOADED = "left"


class Context(Protocol):
    """The part of Lambda's context that is used."""

    @property
    def memory_limit_in_mb(self) -> int | str:
        """The function's memory, in MiB."""
        ...

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is ended."""
        ...


class NotAllLoaded(TransientError):
    """Files of an event were not loaded: Lambda delivers the event again, and loaded files are skipped then."""


class NotAnS3Event(TerminalError):
    """The function was called with something that is not an event of S3 or SQS."""


@dataclass(frozen=True)
class _Message:
    """The unit of redelivery: a message of SQS, or, without an id, the event itself."""

    id: str | None
    objects: tuple[Created, ...] = ()
    bad: str = ""


@dataclass
class _Outcomes:
    """The outcomes of the objects so far."""

    rows: int = 0
    by_object: dict[Created, dict[str, Any]] = field(default_factory=dict[Created, dict[str, Any]])

    def record(self, what: Created, path: str, status: str, rows: int = 0, reason: str = "") -> None:
        self.by_object[what] = {"file": path, "status": status, "rows": rows, "reason": reason}

    def record_file(self, what: Created, file: FileOutcome) -> None:
        # Rows of an earlier attempt are reported but not counted a second time.
        self.rows += 0 if file.recovered else file.rows
        self.record(what, file.path, file.status, file.rows, file.reason)

    def record_not_loaded(self, named: Mapping[str, Created], paths: Iterable[str], reason: str) -> None:
        for path in paths:
            self.record(named[path], path, _NOT_LOADED, reason=reason)

    def any_not_loaded(self, objects: Iterable[Created]) -> bool:
        return any(self.by_object[one]["status"] == _NOT_LOADED for one in objects)


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Load the objects that an event names.

    Returns:
        `statusCode` 200, `rows_inserted`, `skipped` (number of files without new rows: loaded before, or of no source),
        and `files` with the `status`, `rows` and `reason` of each. For an event of SQS also `batchItemFailures`: the
        messages to deliver again, because a file could not be loaded or time was running out.

    Raises:
        NotAllLoaded: the same, for an event that did not come through SQS.
        NotAnS3Event: the event is of neither service.
    """
    messages = _messages(event)
    outcomes = _Outcomes()
    _load_all([what for message in messages for what in message.objects], outcomes, context)
    failed = [message for message in messages if message.bad or outcomes.any_not_loaded(message.objects)]
    if failed and failed[0].id is None:
        not_loaded = [file for file in outcomes.by_object.values() if file["status"] == _NOT_LOADED]
        raise NotAllLoaded(
            f"{len(not_loaded)} of {len(outcomes.by_object)} files were not loaded: {not_loaded[0]['reason']}"
        )
    response: dict[str, Any] = {
        "statusCode": 200,
        "rows_inserted": outcomes.rows,
        "skipped": sum(file["status"] in {Status.REPEATED, _IGNORED} for file in outcomes.by_object.values()),
        "files": list(outcomes.by_object.values()),
    }
    if messages and messages[0].id is not None:
        response["batchItemFailures"] = [{"itemIdentifier": message.id} for message in failed]
    return response


def _messages(event: Mapping[str, Any]) -> list[_Message]:
    records = event.get("Records")
    if isinstance(records, list) and records and all(record.get("eventSource") == "aws:sqs" for record in records):
        return [_sqs_message(record) for record in records]
    try:
        return [_Message(None, tuple(created(json.dumps(event))))]
    except BadMessage as error:
        raise NotAnS3Event(f"The event is not one of S3 or SQS: {error}") from error


def _sqs_message(record: Mapping[str, Any]) -> _Message:
    try:
        return _Message(record["messageId"], tuple(created(record["body"])))
    except BadMessage as error:
        # It goes back to the queue, whose redrive policy moves it to the dead-letter queue.
        logger.error("message %s: %s", record["messageId"], error)  # noqa: TRY400 no traceback of what others sent
        return _Message(record["messageId"], bad=str(error))


def _load_all(objects: Iterable[Created], outcomes: _Outcomes, context: Context) -> None:
    """Load objects, source by source and batch by batch, as long as time remains."""
    clock = _Clock(context)
    for landing, source, named in _by_source(objects, outcomes):
        try:
            files = {file.path: file for file in landing.look(named)}
        except RatifyError as error:
            outcomes.record_not_loaded(named, named, f"{type(error).__name__}: {error}")
            continue
        for path in named.keys() - files.keys():
            outcomes.record(named[path], path, _IGNORED, reason="the object no longer exists")
        for batch in batches(sorted(files.values()), _MAX_FILES, _MAX_BYTES):
            if not clock.allows_a_batch():
                outcomes.record_not_loaded(named, [file.path for file in batch], "the function's time was running out")
                continue
            with clock.measured():
                _load(landing, source, batch, named, outcomes, int(context.memory_limit_in_mb))


def _by_source(objects: Iterable[Created], outcomes: _Outcomes) -> Iterator[tuple[LandingZone, Source, dict[str, Created]]]:
    """Yield objects by path, for each landing zone and source; objects of no source are recorded as ignored."""
    settings = Settings()
    chosen = matcher(settings.discovery.glob)
    by_table = {source.table_name: source for source in sources()}
    patterns = {table: matcher(source.pattern) for table, source in by_table.items()}
    groups = defaultdict[tuple[str, str], dict[str, Created]](dict)
    for what in objects:
        zone = settings.landing_url or f"s3://{what.bucket}"
        try:
            path = landing_path(zone, what) or ""
        except BadMessage as error:
            outcomes.record(what, what.key, _IGNORED, reason=str(error))
            continue
        wanted = path.startswith(settings.discovery.prefix) and chosen(path)
        if table := next((name for name, matches in patterns.items() if wanted and matches(path)), None):
            groups[zone, table][path] = what
        else:
            outcomes.record(what, what.key, _IGNORED, reason="no source takes it")
    for (zone, table), named in groups.items():
        yield LandingZone(url=zone), by_table[table], named


def _load(
    landing: LandingZone,
    source: Source,
    batch: list[LandedFile],
    named: Mapping[str, Created],
    outcomes: _Outcomes,
    memory_mib: int,
) -> None:
    try:
        outcome = load_batch(_engine(memory_mib), landing, source, batch)
        apply_post_load_actions(landing, Settings().discovery, source, outcome)
    except RatifyError as error:
        logger.exception("a batch of %s", source.table_name)
        outcomes.record_not_loaded(named, [file.path for file in batch], f"{type(error).__name__}: {error}")
    except BaseException:
        # The engine may be unusable, and this process goes on to the next event.
        _engine(memory_mib).close()
        _engine.cache_clear()
        raise
    else:
        for file in outcome.files:
            outcomes.record_file(named[file.path], file)


class _Clock:
    """Decides whether time remains for another batch: twice the longest so far. The first batch always starts."""

    def __init__(self, context: Context) -> None:
        self._left = context.get_remaining_time_in_millis
        self._longest = 0.0

    def allows_a_batch(self) -> bool:
        return self._left() / 1000 > 2 * self._longest

    @contextmanager
    def measured(self) -> Generator[None]:
        started = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - started)


@cache
def _engine(memory_mib: int) -> DuckDB:
    """The engine, which stays warm between invocations."""
    # More threads than cores cost buffers and gain nothing.
    threads = ceil(memory_mib / _MIB_PER_CORE)
    return DuckDB(catalog=UnityCatalog(), threads=threads, memory_limit=f"{int(memory_mib * _DUCKDB_SHARE)}MiB")
