"""An AWS Lambda function that loads what lands: `handler(event, context)`.

The event is what S3 sends when an object was created, directly or through an SQS queue. Each object goes into the bronze
table of the source whose pattern its path matches, exactly once, however often and by however many functions at once its
event is delivered: the table's own log says what is in.
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

from assets.bronze.landed_tables import SOURCES
from ingest.discovery.notifications import BadMessage, Created, created, landing_path
from ingest.file_source import Source
from ingest.ledger.file_ledger import FileOutcome, Status
from ingest.load.batch_loading import load_batch
from ingest.load.file_batches import batches
from ingest.load.post_load_actions import apply_post_load_actions
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import RatifyError
from resources.landing.landing_zone import LandedFile, LandingZone, matcher
from resources.settings import Settings

logger = logging.getLogger(__name__)

# Small batches, for one that meets the function's end has to be made again. They also have to fit into /tmp.
_MAX_FILES = 20
_MAX_BYTES = 64 << 20
_DUCKDB_SHARE = 0.25
"""Of the function's memory: Python, the clients and the extensions need 350 MiB, and of the least, 512, this is the rest."""

_MIB_PER_CORE = 1769
"""Lambda's own measure: a function of so much memory has one core."""

_IGNORED = "ignored"
_LEFT = "left"


class Context(Protocol):
    """What of Lambda's context is used."""

    @property
    def memory_limit_in_mb(self) -> int | str:
        """The function's memory, in MiB."""
        ...

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is ended."""
        ...


class NotAllLoaded(RatifyError):
    """Files of an event were not loaded: Lambda delivers the event again, and what is loaded already is left out then."""


class NotAnS3Event(RatifyError):
    """The function was called with something that is no event of S3 or SQS."""


@dataclass(frozen=True)
class _Message:
    """What is delivered again as a whole: one of SQS, or, without an id, the event itself."""

    id: str | None
    objects: tuple[Created, ...] = ()
    bad: str = ""


@dataclass
class _Answer:
    """What became of each object so far."""

    rows: int = 0
    fates: dict[Created, dict[str, Any]] = field(default_factory=dict[Created, dict[str, Any]])

    def tell(self, what: Created, path: str, status: str, rows: int = 0, reason: str = "") -> None:
        self.fates[what] = {"file": path, "status": status, "rows": rows, "reason": reason}

    def tell_file(self, what: Created, file: FileOutcome) -> None:
        # Rows of an earlier attempt are told, and not counted a second time.
        self.rows += 0 if file.recovered else file.rows
        self.tell(what, file.path, file.status, file.rows, file.reason)

    def leave(self, named: Mapping[str, Created], paths: Iterable[str], reason: str) -> None:
        for path in paths:
            self.tell(named[path], path, _LEFT, reason=reason)

    def left(self, what: Iterable[Created]) -> bool:
        return any(self.fates[one]["status"] == _LEFT for one in what)


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Load the objects that an event names.

    Returns:
        `statusCode` 200, `rows_inserted`, `skipped` (number of files that brought nothing: loaded before, or of no source),
        and `files` with the `status`, `rows` and `reason` of each. For an event of SQS also `batchItemFailures`: the
        messages that are to be delivered again, because a file could not be loaded or the time was running out.

    Raises:
        NotAllLoaded: the same, for an event that did not come through SQS.
        NotAnS3Event: there is nothing in it that this function knows.
    """
    messages = _messages(event)
    answer = _Answer()
    _load_all([what for message in messages for what in message.objects], answer, context)
    failed = [message for message in messages if message.bad or answer.left(message.objects)]
    if failed and failed[0].id is None:
        left = [fate for fate in answer.fates.values() if fate["status"] == _LEFT]
        raise NotAllLoaded(f"{len(left)} of {len(answer.fates)} files were not loaded: {left[0]['reason']}")
    told: dict[str, Any] = {
        "statusCode": 200,
        "rows_inserted": answer.rows,
        "skipped": sum(fate["status"] in {Status.REPEATED, _IGNORED} for fate in answer.fates.values()),
        "files": list(answer.fates.values()),
    }
    if messages and messages[0].id is not None:
        told["batchItemFailures"] = [{"itemIdentifier": message.id} for message in failed]
    return told


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
        # It goes back to the queue, whose redrive policy puts it aside.
        logger.error("message %s: %s", record["messageId"], error)  # noqa: TRY400 no traceback of what others sent
        return _Message(record["messageId"], bad=str(error))


def _load_all(objects: Iterable[Created], answer: _Answer, context: Context) -> None:
    """Load objects, source by source and batch by batch, for as long as there is time."""
    clock = _Clock(context)
    for landing, source, named in _sorted_out(objects, answer):
        try:
            files = {file.path: file for file in landing.look(named)}
        except RatifyError as error:
            answer.leave(named, named, f"{type(error).__name__}: {error}")
            continue
        for path in named.keys() - files.keys():
            answer.tell(named[path], path, _IGNORED, reason="there is no such object any more")
        for batch in batches(sorted(files.values()), _MAX_FILES, _MAX_BYTES):
            if not clock.allows_a_batch():
                answer.leave(named, [file.path for file in batch], "the function's time was running out")
                continue
            with clock.measured():
                _load(landing, source, batch, named, answer, int(context.memory_limit_in_mb))


def _sorted_out(objects: Iterable[Created], answer: _Answer) -> Iterator[tuple[LandingZone, Source, dict[str, Created]]]:
    """Objects by path, for each landing zone and source; those that no source takes are told to be ignored."""
    settings = Settings()
    chosen = matcher(settings.discovery.glob)
    patterns = {source.table_name: matcher(source.pattern) for source in SOURCES}
    groups = defaultdict[tuple[str, str], dict[str, Created]](dict)
    for what in objects:
        zone = settings.landing_url or f"s3://{what.bucket}"
        try:
            path = landing_path(zone, what) or ""
        except BadMessage as error:
            answer.tell(what, what.key, _IGNORED, reason=str(error))
            continue
        wanted = path.startswith(settings.discovery.prefix) and chosen(path)
        if table := next((name for name, matches in patterns.items() if wanted and matches(path)), None):
            groups[zone, table][path] = what
        else:
            answer.tell(what, what.key, _IGNORED, reason="no source takes it")
    sources = {source.table_name: source for source in SOURCES}
    for (zone, table), named in groups.items():
        yield LandingZone(url=zone), sources[table], named


def _load(
    landing: LandingZone,
    source: Source,
    batch: list[LandedFile],
    named: Mapping[str, Created],
    answer: _Answer,
    memory_mib: int,
) -> None:
    try:
        outcome = load_batch(_engine(memory_mib), landing, source, batch)
        apply_post_load_actions(landing, Settings().discovery, outcome)
    except RatifyError as error:
        logger.exception("a batch of %s", source.table_name)
        answer.leave(named, [file.path for file in batch], f"{type(error).__name__}: {error}")
    except BaseException:
        # The engine may be of no more use, and this process goes on to the next event.
        _engine(memory_mib).close()
        _engine.cache_clear()
        raise
    else:
        for file in outcome.files:
            answer.tell_file(named[file.path], file)


class _Clock:
    """Says whether there is time for one more batch: for twice the longest yet. The first one is always begun."""

    def __init__(self, context: Context) -> None:
        self._left = context.get_remaining_time_in_millis
        self._longest = 0.0

    def allows_a_batch(self) -> bool:
        return self._left() / 1000 > 2 * self._longest

    @contextmanager
    def measured(self) -> Generator[None]:
        begun = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - begun)


@cache
def _engine(memory_mib: int) -> DuckDB:
    """The engine, which stays warm between invocations."""
    # A thread more than there are cores would cost its buffers and bring nothing.
    threads = ceil(memory_mib / _MIB_PER_CORE)
    return DuckDB(catalog=UnityCatalog(), threads=threads, memory_limit=f"{int(memory_mib * _DUCKDB_SHARE)}MiB")
