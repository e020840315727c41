"""Where a stream of Kafka's records begins, what is missing from the topic, and what Spark reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.components.checks.offset_checks import Partition, each_offset_once
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions, StreamRun, batch_of, failure, offsets
from ratify_lakehouse.errors import BrokerDenied, BrokerUnavailable, OffsetsExpired, StreamFailed, TopicMissing
from ratify_lakehouse.ingest.records.expiry_watch import ExpiryWatch, OvertakenOffsets
from ratify_lakehouse.ingest.records.kafka_records import KafkaSource, _missing, _show_progress, refusal, starting
from ratify_lakehouse.ingest.records.record_source import Gap, SourceOptions
from ratify_lakehouse.kafka.kafka_client import Kafka, OffsetRange, Offsets


def offsets_of(*numbers: int) -> Offsets:
    return {"t": dict(enumerate(numbers))}


def test_where_a_stream_begins() -> None:
    offset_range = OffsetRange(offsets_of(5, 0), offsets_of(10, 20))
    assert starting(SourceOptions(), offset_range, {}) == offsets_of(5, 0)
    assert starting(SourceOptions(starting="latest"), offset_range, {}) == offsets_of(10, 20)
    assert starting(SourceOptions(starting_offsets={"t": {"1": 7}}), offset_range, {}) == offsets_of(5, 7)
    # What the table holds is stronger than what is configured; what it lacks of a known topic is read from the start.
    assert starting(SourceOptions(starting="latest"), offset_range, {"t": {0: 8}}) == offsets_of(8, 0)
    assert starting(SourceOptions(), offset_range, {"t": {0: 3}}) == offsets_of(5, 0)


def test_a_refusal_spells_out_what_would_be_lost() -> None:
    said = refusal("c.bronze.t", offsets_of(0, 40), offsets_of(100, 90), OffsetRange(offsets_of(60, 0), offsets_of(100, 90)))
    assert "60 offsets that it holds are no longer in Kafka" in said
    assert "t/0: the table holds 0 to 99, the topic begins at 60" in said
    assert "t/1: the table holds 40 to 89, the topic begins at 0" in said


def test_offsets_that_are_missing_or_doubled_are_found() -> None:
    whole, missing, doubled = (
        Partition("t", 0, 10, 10, 5, 14),
        Partition("t", 1, 8, 8, 0, 9),
        Partition("t", 2, 12, 10, 0, 9),
    )
    both = Partition("t", 3, 10, 9, 0, 9)
    assert each_offset_once([whole]).passed
    found = each_offset_once([whole, missing, doubled, both])
    assert not found.passed
    assert (found.numbers["missing"], found.numbers["doubled"]) == (3, 3)
    assert "t/1: 8 rows, 8 offsets of 0 to 9" in found.description
    assert "t/3: 10 rows, 9 offsets of 0 to 9" in found.description


def test_a_topic_that_was_recreated_is_not_taken_for_the_old_one() -> None:
    offset_range = OffsetRange(offsets_of(0, 7), offsets_of(10, 20))
    assert _missing({"t": {0: 10, 1: 5}, "gone": {0: 3}}, offset_range) == [Gap("t", 1, 5, 6)]
    with pytest.raises(
        OffsetsExpired, match="t/0 up to offset 10, and the topic ends before 10: it was deleted and created again"
    ):
        _missing(offsets_of(11), offset_range)


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=12))
def test_what_expired_before_a_stream_came_is_found_and_what_expired_behind_it_is_not(steps: list[tuple[int, int]]) -> None:
    """In each step some records expire, and then the stream goes on to where as many are left as it had read."""
    watch, at, earliest, lost, passed = ExpiryWatch(), 0, 0, set[int](), set[int]()
    for read, expired in steps:
        earliest += expired
        end = max(at, earliest) + read
        lost |= set(range(at, min(end, earliest)))
        passed |= set(range(max(at, earliest), end))
        at = end
        watch.step(offsets_of(at), offsets_of(earliest))
    # What expires after the last step.
    found = watch.found(offsets_of(0), offsets_of(at), offsets_of(earliest))
    ranges = [set(range(each.first, each.end)) for each in found]
    assert set[int]().union(*ranges) == lost
    assert sum(map(len, ranges)) == len(lost)
    assert not passed & lost


def test_a_stream_that_is_far_ahead_loses_nothing_when_what_it_has_read_expires() -> None:
    watch = ExpiryWatch()
    watch.step(offsets_of(100), offsets_of(0))
    watch.step(offsets_of(200), offsets_of(90))
    assert watch.found(offsets_of(0), offsets_of(300), offsets_of(199)) == []
    assert watch.found(offsets_of(0), offsets_of(300), offsets_of(250)) == [OvertakenOffsets("t", 0, 200, 250)]


def test_committed_records_are_read_unless_all_are_wanted() -> None:
    uncommitted = SourceOptions(topics=["t"], isolation="read_uncommitted")
    for config, level in ((SourceOptions(topics=["t"]), "read_committed"), (uncommitted, "read_uncommitted")):
        source = KafkaSource(Kafka(bootstrap="127.0.0.1:1"), config)
        assert source._reader_options(StreamOptions())["kafka.isolation.level"] == level


def test_progress_that_cannot_be_shown_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_SECURITY_PROTOCOL", raising=False)
    _show_progress(Kafka(bootstrap="127.0.0.1:1", timeout_seconds=1), "watchers", offsets_of(1))
    assert "not shown in the consumer group watchers" in caplog.text


PROGRESS: dict[str, Any] = {
    "batchId": 7,
    "batchDuration": 2500,
    "stateOperators": [{"numRowsTotal": 3}, {"numRowsTotal": 4}],
    "sources": [
        {
            "startOffset": '{"t":{"0":0}}',
            "endOffset": '{"t":{"0":10}}',
            "latestOffset": '{"t":{"0":14,"1":3}}',
            "numInputRows": 10,
            "inputRowsPerSecond": 4.04,
            "processedRowsPerSecond": 8.0,
            "metrics": {"maxOffsetsBehindLatest": "4"},
        }
    ],
}


def test_progress_as_spark_tells_it() -> None:
    start, end = {"t": {"0": 0}}, {"t": {"0": 10}}
    assert batch_of(PROGRESS) == Batch(7, 10, 2.5, 4.0, 8.0, start, end, 7, 7)
    assert offsets(end) == offsets_of(10)
    delta = {**PROGRESS["sources"][0], "metrics": {}, "endOffset": '{"reservoirVersion": 3}'}
    assert batch_of({**PROGRESS, "sources": [delta]}).end == {"reservoirVersion": 3}
    assert batch_of({**PROGRESS, "sources": [delta]}).offsets_behind is None
    assert StreamRun("q", (batch_of(PROGRESS),) * 2).rows == 20


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] …", OffsetsExpired),
        ("Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: no", BrokerDenied),
        ("Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: x", TopicMissing),
        ("Caused by: org.apache.kafka.common.errors.TimeoutException: x", BrokerUnavailable),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure …", StreamFailed),
        ("anything else", StreamFailed),
    ],
)
def test_what_spark_says_of_a_failed_query_is_understood(said: str, kind: type[Exception]) -> None:
    error = failure(f"[STREAM_FAILED] Query terminated\n\n{said}")
    assert type(error) is kind
    assert said in str(error)
