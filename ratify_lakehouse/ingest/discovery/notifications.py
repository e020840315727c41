"""Notifications that an object was created: how S3 writes them, and the queues that deliver them.

The shapes are those of S3's event messages, of SNS's envelopes around them, and of EventBridge's "Object Created" events.
"""

import json
import logging
import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast
from urllib.parse import unquote_plus, urlsplit
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError

from ratify_lakehouse.durable_files import write_durably
from ratify_lakehouse.errors import TerminalError, TransientError
from ratify_lakehouse.landing.file_listing import is_text

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
"""The most that a message can have: SQS takes no larger one."""

_VISIBILITY_SECONDS = 300


class BadMessage(TerminalError):
    """A message that is no notification; the text names what is wrong with it."""


class QueueUnavailable(TransientError):
    """The queue cannot be read; its messages are not known."""


class Created(NamedTuple):
    """An object that was created: its bucket, and its key as plain text."""

    bucket: str
    key: str


class _Bucket(BaseModel):
    name: str


class _Object(BaseModel):
    key: str = Field(min_length=1)


class _Place(BaseModel):
    bucket: _Bucket
    object: _Object


class _Record(BaseModel):
    event: str = Field(alias="eventName")
    s3: _Place


class _Records(BaseModel):
    records: list[_Record] = Field(alias="Records")


class _BridgeEvent(BaseModel):
    source: Literal["aws.s3"]
    detail: _Place


def created(text: str) -> list[Created]:
    """Return the objects that a message announces as created; none for a test event, or for events of another kind.

    Raises:
        BadMessage: it is no notification of S3, not even one in an envelope of SNS.
    """
    if len(text) > MAX_BYTES:
        raise BadMessage(f"longer than {MAX_BYTES} bytes")
    message = _object(text)
    try:
        if message.get("Type") == "Notification" and isinstance(message.get("Message"), str):
            return created(message["Message"])
        if message.get("Event") == "s3:TestEvent":
            return []
        if "detail-type" in message:
            event = _BridgeEvent.model_validate(message)
            # EventBridge, other than S3 itself, does not quote the key.
            wanted = message["detail-type"] == "Object Created"
            return [Created(event.detail.bucket.name, event.detail.object.key)] if wanted else []
        records = _Records.model_validate(message).records
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadMessage(f"no S3 event: {where}: {first['msg']}") from error
    return [
        Created(record.s3.bucket.name, unquote_plus(record.s3.object.key))
        for record in records
        if record.event.removeprefix("s3:").startswith("ObjectCreated:")
    ]


def _object(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"no JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage(f"no JSON object, but {type(message).__name__}")
    return cast("dict[str, Any]", message)


def landing_path(zone: str, file: Created) -> str | None:
    """Return an object's path in the landing zone, None where it is outside.

    Of a zone in S3, bucket and prefix must be those of the zone. In any other, the key is the path, whatever the bucket.

    Raises:
        BadMessage: the key is none that a listing could show.
    """
    if any(part in {"", ".", ".."} for part in file.key.split("/")) or "\0" in file.key or not is_text(file.key):
        raise BadMessage(f"the key {file.key!r} is no path")
    scheme, separator, root = zone.partition("://")
    if not separator or scheme not in {"s3", "s3a"}:
        return file.key
    place, root = f"{file.bucket}/{file.key}", root.rstrip("/") + "/"
    return place.removeprefix(root) if place.startswith(root) else None


@dataclass(frozen=True)
class Message:
    """A message as it was received; its queue deletes it by `receipt`."""

    id: str
    receipt: str
    text: str


class Queue(Protocol):
    """Where messages wait until they are deleted, once their files are settled: each is delivered at least once."""

    def receive(self, awaited: "Awaited") -> Iterator[Message]:
        """Yield the messages in the queue, except those that are awaited already."""
        ...

    def delete(self, receipt: str) -> None:
        """Delete a message; one that is missing is no error."""
        ...


class Awaited(Protocol):
    """Whether the files of a message are awaited already; takes its id and its newest receipt."""

    def __call__(self, message: str, receipt: str) -> bool: ...


@dataclass(frozen=True)
class FolderQueue:
    """A folder with a JSON file for each message."""

    folder: Path

    def put(self, text: str) -> str:
        """Add a message durably; return its id."""
        name = f"{time.time_ns()}-{uuid4().hex}.json"
        write_durably(self.folder / name, text.encode())
        return name

    def receive(self, awaited: Awaited) -> Iterator[Message]:
        """See Queue."""
        with _available(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(self.folder) as entries:
                names = sorted(entry.name for entry in entries if _is_message(entry))
        for name in names:
            if not awaited(name, name) and (text := self._text(name)) is not None:
                yield Message(name, name, text)

    def _text(self, name: str) -> str | None:
        try:
            with (self.folder / name).open("rb") as stream:
                # Bytes that are no text make a bad message.
                return stream.read(MAX_BYTES + 1).decode(errors="replace")
        except OSError as error:
            # One unreadable file must not delay the others.
            logger.warning("the message %s is skipped: %s", self.folder / name, error)
            return None

    def delete(self, receipt: str) -> None:
        """See Queue."""
        with _available(str(self.folder)):
            (self.folder / receipt).unlink(missing_ok=True)


class SqsQueue:
    """A queue of SQS, or of a server that speaks its API; keys are found as boto3 finds them."""

    def __init__(self, url: str) -> None:
        self._url = url
        with _available(url):
            import boto3  # pyright: ignore[reportMissingTypeStubs]

            parts = urlsplit(url)
            # https://sqs.<region>.amazonaws.com/<account>/<queue>; other servers ignore the region.
            region = re.match(r"sqs\.([\w-]+)\.", parts.netloc)
            self._sqs = cast("Any", boto3).client(
                "sqs", endpoint_url=f"{parts.scheme}://{parts.netloc}", region_name=region[1] if region else "us-east-1"
            )

    def receive(self, awaited: Awaited) -> Iterator[Message]:
        """See Queue."""
        while True:
            with _available(self._url):
                answer = self._sqs.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=10, VisibilityTimeout=_VISIBILITY_SECONDS, WaitTimeSeconds=1
                )
            received = answer.get("Messages", [])
            for item in received:
                if not awaited(item["MessageId"], item["ReceiptHandle"]):
                    yield Message(item["MessageId"], item["ReceiptHandle"], item["Body"])
            if not received:
                return

    def delete(self, receipt: str) -> None:
        """See Queue."""
        with _available(self._url):
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)


def _is_message(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".json") and entry.name[0] not in "._" and is_text(entry.name) and entry.is_file()


def queue_of(place: str) -> Queue:
    """Return the queue of a URL (SQS) or a folder.

    Raises:
        QueueUnavailable: the URL's client cannot be made.
    """
    return SqsQueue(place) if place.startswith(("http://", "https://")) else FolderQueue(Path(place))


def keep_bad_message(folder: Path, message: Message, reason: str) -> None:
    """Store a message that is no notification, with the reason in a file beside it. Repeating this changes nothing."""
    write_durably(
        folder / f"{Path(message.id).stem}.reason.json", json.dumps({"message": message.id, "reason": reason}).encode()
    )
    write_durably(folder / f"{Path(message.id).stem}.json", message.text.encode())


@contextmanager
def _available(place: str) -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise QueueUnavailable(f"{place}: {error} (for SQS, install ratify-lakehouse[s3]).") from error
    except Exception as error:
        raise QueueUnavailable(
            f"The queue {place} cannot be read: {type(error).__name__}: {error}. Check DISCOVERY_QUEUE, the network "
            "and the keys."
        ) from error
