"""A topic feed goes on from its position alone: where that is lost or another topic's, it says so and publishes nothing."""

from dataclasses import replace

import pytest

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.feeds import topic_feed
from ratify_lakehouse.components.feeds.paired_changes import given_version
from ratify_lakehouse.components.feeds.topic_feed import publish_changes
from ratify_lakehouse.components.feeds.topic_feed_component import position_as_reported
from ratify_lakehouse.components.feeds.topic_position import FeedPosition, FoundTopic, check_position
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import PositionUnsafe
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.followed_table import FollowedTable, changes_in, topic_of

stack = pytest.mark.stack


def delete_topics(kafka: Kafka, *topics: str) -> None:
    with kafka._admin() as (admin, ask):
        ask(lambda: admin.delete_topics(list(topics)))


@stack
def test_a_lost_position_repeats_nothing(followed: FollowedTable, kafka: Kafka, fresh_topic: str) -> None:
    spark, published = followed.lake.spark, topic_of(followed, fresh_topic)
    followed.load({1: "a", 2: "b"})
    reported = publish_changes(kafka, spark, published).position
    followed.by_spark = False
    followed.update([1], "c")
    again = publish_changes(kafka, spark, published, reported)
    assert again.position
    delete_topics(kafka, published.offsets_topic)
    for known, why in (
        (again.position, r"is gone, and its last materialization reported version 2: .* `from_version: 3`.* or delete"),
        (None, "has records, but .* has no position for it"),
        (replace(again.position, topic_id=""), "has records, but .* has no position for it"),
    ):
        with pytest.raises(PositionUnsafe, match=why):
            publish_changes(kafka, spark, published, known)
    # Nothing is new, and still the position is one again.
    publish_changes(kafka, spark, replace(published, from_version=3), again.position)
    assert publish_changes(kafka, spark, published, again.position).transactions == 0
    with pytest.raises(PositionUnsafe, match=r"is set back to version 2, .* reported version 3: .* `from_version: 4`"):
        publish_changes(kafka, spark, published, replace(again.position, version=3))
    followed.delete([2])
    publish_changes(kafka, spark, published, again.position)
    assert changes_in(kafka, fresh_topic) == followed.until(3)


# The tests of `check_position` and `position_as_reported` below have it without a topic.
@pytest.mark.long
@stack
def test_a_topic_that_is_created_again_lacks_nothing(followed: FollowedTable, kafka: Kafka, fresh_topic: str) -> None:
    spark, published = followed.lake.spark, topic_of(followed, fresh_topic)
    followed.load({1: "a"})
    reported = publish_changes(kafka, spark, published).position
    delete_topics(kafka, fresh_topic)
    with pytest.raises(PositionUnsafe, match=r"was created again: it lacks the changes up to version 1.* `from_version: 2`"):
        publish_changes(kafka, spark, published, reported)
    delete_topics(kafka, published.offsets_topic)
    publish_changes(kafka, spark, published, reported)
    assert changes_in(kafka, fresh_topic) == followed.until(1)
    delete_topics(kafka, fresh_topic)
    followed.load({2: "b"})
    publish_changes(kafka, spark, replace(published, from_version=2), reported)
    assert changes_in(kafka, fresh_topic) == {2: followed.expected[2]}


def test_where_the_table_was_created_again_too_nothing_can_be_missing() -> None:
    found = FoundTopic("t", "new", lambda: False, FeedPosition("before", 50, "old"), None)
    check_position(found, "after", 0)
    with pytest.raises(PositionUnsafe, match="was created again: it lacks the changes up to version 50"):
        check_position(found, "before", 0)


def test_the_later_position_is_the_one_to_go_on_from() -> None:
    found = FoundTopic("t", "t", lambda: True, FeedPosition("before", 10, "t"), FeedPosition("after", 5, "t"))
    assert (found.last("after"), found.last("another")) == (found.reported, found.position)
    with pytest.raises(PositionUnsafe, match=r"set back to version 10, .* reported version 5: .* `from_version: 6`"):
        check_position(found, "after", 5)
    check_position(found, "after", 6)
    check_position(found, "another", 0)


def test_a_version_to_go_on_from_is_asked_for_once() -> None:
    last = FeedPosition("t", 5, "", from_version=3)
    assert [given_version(each, 3) for each in (None, last, replace(last, from_version=0))] == [3, 0, 3]


def test_a_position_before_the_reported_one_fails_the_check() -> None:
    def passed(reported: FeedPosition | None, found: FeedPosition | None, topic_id: str | None = "t") -> Finding:
        return position_as_reported(reported, found, topic_id)

    reported = FeedPosition("id", 5)
    assert passed(None, None).passed
    assert passed(reported, reported).passed
    assert passed(reported, FeedPosition("id", 6)).passed
    assert passed(reported, FeedPosition("id", 5, "t")).passed
    assert "created again" in passed(reported, FeedPosition("id", 5, "other")).description
    assert "topic is gone" in passed(reported, reported, None).description
    assert "position is gone" in passed(reported, None).description
    assert "before the one that was reported" in passed(reported, FeedPosition("id", 4)).description
    assert "another table" in passed(reported, FeedPosition("other", 6)).description
    assert not any(passed(reported, found).passed for found in (None, FeedPosition("id", 4), FeedPosition("other", 6)))


@stack
def test_the_position_is_that_of_the_table_that_was_read(
    followed: FollowedTable, kafka: Kafka, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, published, real = followed.lake, topic_of(followed, fresh_topic), topic_feed.opened_log

    def created_again(spark: Spark, full_name: str) -> TableLog:
        lake.drop(followed.table)
        lake.create(followed.table)
        followed.load({1: "a"})
        return real(spark, full_name)

    monkeypatch.setattr(topic_feed, "opened_log", created_again)
    done = publish_changes(kafka, lake.spark, published)
    assert done.position == FeedPosition(lake.catalog.table(followed.name).table_id or "", 1)
    assert changes_in(kafka, fresh_topic) == followed.until(1)
