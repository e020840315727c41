"""Notifications: their shapes, and the queues that they wait in."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer

from ratify_lakehouse.ingest.discovery.notifications import (
    MAX_BYTES,
    BadMessage,
    Created,
    FolderQueue,
    Message,
    Queue,
    QueueUnavailable,
    SqsQueue,
    created,
    keep_bad_message,
    landing_path,
    queue_of,
)

pytestmark = pytest.mark.server


def s3_event(*keys: str, bucket: str = "lake", name: str = "ObjectCreated:Put") -> str:
    """The message that S3 sends."""
    place = [{"bucket": {"name": bucket}, "object": {"key": quote_plus(key), "size": 8, "eTag": "00"}} for key in keys]
    return json.dumps({"Records": [{"eventVersion": "2.1", "eventName": name, "s3": one} for one in place]})


def sns(message: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:x", "Message": message})


def bridge(key: str, kind: str = "Object Created") -> str:
    detail = {"bucket": {"name": "lake"}, "object": {"key": key, "size": 8, "etag": "00"}}
    return json.dumps({"version": "0", "source": "aws.s3", "detail-type": kind, "detail": detail})


KEY = "trips/a b+ü%.csv"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (s3_event(KEY), [KEY]),
        (s3_event("a.csv", "b.csv"), ["a.csv", "b.csv"]),
        (s3_event("a.csv", name="s3:ObjectCreated:CompleteMultipartUpload"), ["a.csv"]),
        (s3_event("a.csv", name="ObjectRemoved:Delete"), []),
        (sns(s3_event(KEY)), [KEY]),
        (bridge(KEY), [KEY]),
        (sns(bridge(KEY)), [KEY]),
        (bridge("a.csv", "Object Deleted"), []),
        ('{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"lake"}', []),
        (sns('{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"lake"}'), []),
    ],
)
def test_shapes(text: str, keys: list[str]) -> None:
    assert created(text) == [Created("lake", key) for key in keys]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no JSON object, but list"),
        ("{}", "Records: Field required"),
        ('{"Records": [{"eventName": "ObjectCreated:Put"}]}', r"Records\.0\.s3: Field required"),
        (s3_event(""), "at least 1 character"),
        ('{"Type": "SubscriptionConfirmation", "Message": "visit the URL"}', "Records: Field required"),
        (sns("hello"), "no JSON"),
        ('{"detail-type": "Object Created", "source": "mine", "detail": {}}', r"source: Input should be 'aws\.s3'"),
        (" " * (MAX_BYTES + 1), "longer than"),
    ],
)
def test_rubbish_is_reported_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        created(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["Records", "s3", "object", "key", "bucket", "name", "eventName", "Type", "Message", "detail"]
                ),
                x,
            )
        ),
    )
)
def test_whatever_is_sent_is_a_notification_or_rubbish(message: Any) -> None:
    # Any other error would end the sensor's tick.
    with contextlib.suppress(BadMessage):
        assert isinstance(created(json.dumps(message)), list)


@pytest.mark.parametrize(
    ("zone", "file", "path"),
    [
        ("s3://lake/landing", Created("lake", "landing/trips/1.csv"), "trips/1.csv"),
        ("s3://lake/landing/", Created("lake", "landing/trips/1.csv"), "trips/1.csv"),
        ("s3a://lake", Created("lake", "trips/1.csv"), "trips/1.csv"),
        ("s3://lake/landing", Created("lake", "landing2/trips/1.csv"), None),
        ("s3://lake/landing", Created("other", "landing/trips/1.csv"), None),
        ("/data/landing", Created("any", "trips/1.csv"), "trips/1.csv"),
    ],
)
def test_paths_in_the_landing_zone(zone: str, file: Created, path: str | None) -> None:
    assert landing_path(zone, file) == path


@pytest.mark.parametrize("key", ["../secret.csv", "a/../../b.csv", "/etc/passwd", "a//b.csv", "a/", "a\0.csv", "\ud800.csv"])
@pytest.mark.parametrize("zone", ["s3://lake", "/data/landing"])
def test_keys_that_lead_out_of_the_zone_are_rubbish(zone: str, key: str) -> None:
    with pytest.raises(BadMessage, match="is no path"):
        landing_path(zone, Created("lake", key))


@pytest.fixture(scope="module")
def sqs_url() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "sqs"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    if request.param == "folder":
        return queue_of(str(tmp_path / "queue"))
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    client = boto3.client("sqs", endpoint_url=request.getfixturevalue("sqs_url"), region_name="us-east-1")
    return queue_of(client.create_queue(QueueName=tmp_path.name[-60:])["QueueUrl"])


def send(queue: Queue, text: str) -> None:
    if isinstance(queue, SqsQueue):
        queue._sqs.send_message(QueueUrl=queue._url, MessageBody=text)
    else:
        assert isinstance(queue, FolderQueue)
        queue.put(text)


def new(message: str, receipt: str) -> bool:
    return False


def test_what_was_sent_is_received_until_it_is_deleted(queue: Queue) -> None:
    texts = {s3_event(f"{number}.csv") for number in range(25)}
    for text in texts:
        send(queue, text)
    received = list(queue.receive(new))
    assert {message.text for message in received} == texts
    for message in received:
        queue.delete(message.receipt)
        queue.delete(message.receipt)
    if isinstance(queue, SqsQueue):
        counted = queue._sqs.get_queue_attributes(QueueUrl=queue._url, AttributeNames=["All"])["Attributes"]
        assert counted["ApproximateNumberOfMessagesNotVisible"] == counted["ApproximateNumberOfMessages"] == "0"
    assert list(queue.receive(new)) == []


def test_messages_that_are_awaited_are_left_out(queue: Queue) -> None:
    send(queue, s3_event("a.csv"))
    seen = list[tuple[str, str]]()

    def awaited(message: str, receipt: str) -> bool:
        seen.append((message, receipt))
        return True

    assert list(queue.receive(awaited)) == []
    assert len(seen) == 1


def test_a_queue_that_is_not_there_is_no_empty_queue(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QueueUnavailable, match="Check DISCOVERY_QUEUE"):
        list(FolderQueue(tmp_path / "file").receive(new))
    with pytest.raises(QueueUnavailable, match="Check DISCOVERY_QUEUE"):
        list(SqsQueue("http://127.0.0.1:9/1/none").receive(new))


def test_files_that_are_no_messages_keep_no_message_waiting(tmp_path: Path) -> None:
    queue = FolderQueue(tmp_path)
    (tmp_path / "a.json").mkdir()
    for name in (".b.json", "_c.json", "d.json.part", "e.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "f.json").write_bytes(b"\xff\xfe")
    (tmp_path / "g.json").symlink_to(tmp_path / "nowhere")
    sent = queue.put(s3_event("a.csv"))
    assert sorted(message.id for message in queue.receive(new)) == sorted([sent, "f.json"])


def test_bad_messages_are_kept_with_their_reason(tmp_path: Path) -> None:
    for _ in range(2):
        keep_bad_message(tmp_path / "bad", Message("7.json", "r", "rubbish"), "no JSON")
    assert sorted(path.name for path in (tmp_path / "bad").iterdir()) == ["7.json", "7.reason.json"]
    assert (tmp_path / "bad" / "7.json").read_text() == "rubbish"
    assert json.loads((tmp_path / "bad" / "7.reason.json").read_text()) == {"message": "7.json", "reason": "no JSON"}
