"""A topic has each change of its table once for readers of committed records, in order for each key, whatever is killed."""

import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.feeds import topic_feed
from ratify_lakehouse.components.feeds.topic_feed import Published, PublishedTopic, publish_changes
from ratify_lakehouse.components.feeds.topic_position import FeedPosition, read_position
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import (
    BrokerRejected,
    BrokerUnavailable,
    ChangesNotRecorded,
    PositionUnsafe,
    QueryMismatch,
    StreamBusy,
)
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.kafka.kafka_transactions import TransactionalProducer
from tests.components.feed_publisher import MOMENTS, REFUSED, Death, started
from tests.components.followed_table import NO_ROW, FollowedTable, changes_in, consumed, topic_of
from tests.components.test_yaml_tables import Project, project
from tests.conftest import TestBroker
from tests.engines.lakehouse import Lakehouse

stack = pytest.mark.stack

__all__ = ["project"]


def position(kafka: Kafka, followed: FollowedTable, published: PublishedTopic) -> FeedPosition | None:
    return read_position(kafka, followed.name, published.offsets_topic)


@stack
def test_a_declared_topic_has_a_message_for_each_changed_row(
    followed: FollowedTable, kafka: Kafka, fresh_topic: str, project: Project
) -> None:
    lake, key = followed.lake, dg.AssetKey(["kafka", fresh_topic])
    followed.load({1: 'a"', 2: None})
    followed.update([2], "b")
    followed.delete([1])
    attributes = (
        f"description: D\n  table: {followed.table.table_name}\n  keys: [id]\n  external: true\n  topic: {fresh_topic}"
    )
    project.write("feeds", "changes", f"type: ratify_lakehouse.TopicFeed\nattributes:\n  {attributes}\n")
    declared = project.tables.definitions
    defs = dg.Definitions(
        declared.assets, asset_checks=declared.asset_checks, resources={"spark": lake.spark, "kafka": kafka}
    )
    table_id = lake.catalog.table(followed.name).table_id or ""
    with dg.DagsterInstance.ephemeral() as instance:
        done = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        (made,) = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
        shown = {name: value.value for name, value in made.metadata.items()}
        assert (made.asset_key, shown["messages"], shown["versions read"]) == (key, 4, "0 to 3")
        topic_id = kafka.topic_id(fresh_topic)
        assert shown["position"] == {"table_id": table_id, "version": 3, "topic_id": topic_id, "from_version": 0}
        assert [check.passed for check in done.get_asset_check_evaluations()] == [True]
        claimed = {"position": dg.MetadataValue.json({"table_id": table_id, "version": 4})}
        instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=claimed))
        checks = dg.define_asset_job("checks", dg.AssetSelection.checks_for_assets(key))
        done = (
            dg.Definitions.merge(defs, dg.Definitions(jobs=[checks]))
            .resolve_job_def("checks")
            .execute_in_process(instance=instance)
        )
        (check,) = done.get_asset_check_evaluations()
        assert (check.check_name, check.passed) == ("position_as_reported", False)
    times = {commit.version: commit.timestamp for commit in lake.spark.recent_commits(followed.name, 4)}

    def message(op: str, before: str | None, after: str | None, version: int) -> dict[str, object]:
        id_ = 1 if 'a"' in (before, after) else 2
        images = [None if v == NO_ROW else {"id": id_, "v": v} for v in (before, after)]
        source: dict[str, object] = {"connector": "delta", "db": "ratify", "schema": "bronze", "table": followed.table.name}
        source |= {"table_id": table_id, "version": version}
        at = times[version]
        source |= {"commit_timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "ts_ms": round(at.timestamp() * 1000)}
        return {"before": images[0], "after": images[1], "op": op, "source": source}

    assert consumed(kafka, fresh_topic) == [
        ({"id": 1}, message("c", NO_ROW, 'a"', 1)),
        ({"id": 2}, message("c", NO_ROW, None, 1)),
        ({"id": 2}, message("u", None, "b", 2)),
        ({"id": 1}, message("d", 'a"', NO_ROW, 3)),
    ]
    published = PublishedTopic(followed.table.table_name, ("id",), fresh_topic)
    assert publish_changes(kafka, lake.spark, published) == Published(4, FeedPosition(table_id, 3))
    assert kafka.topic_config(published.offsets_topic)["cleanup.policy"] == "compact"


def test_without_kafka_a_topic_is_skipped(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    project.write(
        "feeds",
        "changes",
        "type: ratify_lakehouse.TopicFeed\n"
        "attributes: {description: D, table: bronze.a, keys: [id], external: true, topic: t}\n",
    )
    nowhere = UnityCatalog(host="http://127.0.0.1:1", token="t")
    declared, resources = project.tables.definitions, {"spark": Spark(catalog=nowhere), "kafka": Kafka()}
    defs = dg.Definitions(declared.assets, asset_checks=declared.asset_checks, resources=resources)
    done = defs.resolve_implicit_global_asset_job_def().execute_in_process()
    assert done.success
    assert done.get_asset_materialization_events() == done.get_asset_check_evaluations() == []


@stack
@pytest.mark.long
def test_what_is_refused_publishes_nothing(
    followed: FollowedTable, kafka: Kafka, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, published = followed.lake, replace(topic_of(followed, fresh_topic), most_messages=50)
    kafka.ensure_topic(fresh_topic, 2, {"max.message.bytes": "5000"})
    followed.load(dict.fromkeys(range(9), "a"))
    real = TransactionalProducer._commit

    def interrupted(_: TransactionalProducer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TransactionalProducer, "_commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish_changes(kafka, lake.spark, published)
    assert (consumed(kafka, fresh_topic), position(kafka, followed, published)) == ([], None)

    def overtaken(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(TransactionalProducer, "_commit", real)
        publish_changes(kafka, lake.spark, published)
        real(producer)

    monkeypatch.setattr(TransactionalProducer, "_commit", overtaken)
    with pytest.raises(StreamBusy, match="Another process publishes the same changes"):
        publish_changes(kafka, lake.spark, published)
    assert changes_in(kafka, fresh_topic) == followed.until(1)

    # The first transaction of this pass has room for its messages, the second has not.
    followed.update([3], "b")
    followed.load({20: random.Random(0).randbytes(10_000).hex()})  # noqa: S311
    with pytest.raises(BrokerRejected, match=r"A record of 20,\d+ bytes is too large.*Raise max\.message\.bytes"):
        publish_changes(kafka, lake.spark, replace(published, most_bytes=1000))
    assert position(kafka, followed, published) == FeedPosition(lake.catalog.table(followed.name).table_id or "", 2)
    assert changes_in(kafka, fresh_topic) == followed.until(2)


@stack
@pytest.mark.long
def test_a_lost_feed_and_a_table_that_is_created_again(followed: FollowedTable, kafka: Kafka, fresh_topic: str) -> None:
    lake, published = followed.lake, topic_of(followed, fresh_topic)
    with pytest.raises(QueryMismatch, match=f"has no column other, which is a key of it by topic {fresh_topic}"):
        publish_changes(kafka, lake.spark, replace(published, keys=("other",)))
    followed.load({1: "a"})
    publish_changes(kafka, lake.spark, published)
    properties = f"ALTER TABLE {followed.name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{{}}')"
    lake.run(properties.format("false"))
    lake.run(properties.format("true"))
    with pytest.raises(ChangesNotRecorded, match=r"up to version 1, .* since version 3 only.* `from_version: 3`"):
        publish_changes(kafka, lake.spark, published)
    followed.load({2: "b"})
    assert publish_changes(kafka, lake.spark, replace(published, from_version=3)).position.version == 4
    first = changes_in(kafka, fresh_topic)
    assert first == followed.until(4)
    lake.drop(followed.table)
    lake.create(followed.table)
    again = FollowedTable(lake, followed.table, random.Random(0))  # noqa: S311
    again.load({7: "new"})
    done = publish_changes(kafka, lake.spark, replace(published, from_version=3))
    assert (done.first, done.position.version) == (0, 1)
    assert changes_in(kafka, fresh_topic) == {**first, **again.until(1)}
    # What is said of a version was said of the table that was dropped.
    again.load({8: "more"})
    assert publish_changes(kafka, lake.spark, replace(published, from_version=3)).first == 2
    assert changes_in(kafka, fresh_topic) == {**first, **again.until(2)}
    with pytest.raises(ChangesNotRecorded, match=r"from version 9 of .*, whose latest version is 2: .* set it to 3"):
        publish_changes(kafka, lake.spark, replace(published, from_version=9))


def test_without_a_broker_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    published = PublishedTopic("silver.t", ("id",), "t")
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1 did not answer.*ratify up --kafka"):
        topic_feed._ensure_topics(Kafka(bootstrap="127.0.0.1:1", timeout_seconds=1), published)


@stack
def test_topics_that_cannot_be(kafka: Kafka, fresh_topic: str) -> None:
    published = PublishedTopic("silver.t", ("id",), fresh_topic)
    with pytest.raises(BrokerRejected, match=r"The topic no topic cannot be created.*Invalid topic"):
        topic_feed._ensure_topics(kafka, replace(published, topic="no topic"))
    kafka.ensure_topic(published.offsets_topic)
    with pytest.raises(PositionUnsafe, match="has the cleanup policy delete"):
        topic_feed._ensure_topics(kafka, published)


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], [(3, 9, 0, 1)]),
        ([(4, 2, 10), (5, 2, 10), (7, 1, 10)], [(3, 6, 4, 1), (7, 9, 1, 1)]),
        ([(3, 9, 10), (4, 1, 10)], [(3, 3, 9, 3), (4, 9, 1, 1)]),
        ([(3, 1, 10), (5, 2, 350)], [(3, 4, 1, 1), (5, 9, 2, 4)]),
    ],
)
def test_transactions_have_whole_versions(
    sizes: list[tuple[int, int, int]], chunks: list[tuple[int, int, int, int]]
) -> None:
    published = PublishedTopic("s.t", ("id",), "t", most_messages=4, most_bytes=100)
    found = list(topic_feed._divided(published, sizes, 3, 9))
    assert [(chunk.first, chunk.last, chunk.messages, chunk.parts) for chunk in found] == chunks


class KilledPasses:
    """A table that changes, and passes that are killed, or run two at once."""

    def __init__(self, lake: Lakehouse, broker: TestBroker, topic: str, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.followed = FollowedTable.created(lake, seed)
        self.published = topic_of(self.followed, topic)
        self.environment = broker.environment
        self.kafka = Kafka()
        self.deaths = list[str]()

    def change(self, steps: int) -> None:
        for _ in range(steps):
            self.followed.step()

    def publish(self) -> None:
        publish_changes(self.kafka, self.followed.lake.spark, self.published)
        self.check_visible()
        assert changes_in(self.kafka, self.published.topic) == dict(self.followed.expected)

    def killed(self, moment: str, number: int) -> None:
        """A process dies at a moment of its transaction of that number, or at some time."""
        death = Death(moment, number, self.chance.randrange(10**6))
        process = started(self.published, death if moment else Death(), self.environment)
        if not moment:
            process.join(self.chance.uniform(0.5, 6))
            process.kill()
        process.join(120)
        # It has died, or there were not so many transactions.
        assert process.exitcode in (-signal.SIGKILL, 0), moment
        self.deaths += [moment] if process.exitcode else []
        self.check_visible()

    def both(self) -> None:
        """Two processes publish at once, and may refuse each other."""
        waits = [Death(slow=self.chance.uniform(0, 0.1)) for _ in range(2)]
        running = [started(self.published, death, self.environment) for death in waits]
        for process in running:
            process.join(120)
        assert {process.exitcode for process in running} <= {0, REFUSED}
        self.check_visible()

    def check_visible(self) -> None:
        """What is visible are all changes up to some version."""
        until = time.monotonic() + 10
        while True:
            visible = changes_in(self.kafka, self.published.topic)
            last = max((change[3] for changes in visible.values() for change in changes), default=-1)
            # Kafka ends a transaction whose commit has begun partition by partition.
            if visible == self.followed.until(last) or time.monotonic() > until:
                break
        assert visible == self.followed.until(last)
        found = position(self.kafka, self.followed, self.published)
        assert (found.version if found else -1) >= last


def run_chaos(lake: Lakehouse, broker: TestBroker, topic: str, seed: int, rounds: int, *, by_spark: bool = True) -> None:
    chaos = KilledPasses(lake, broker, topic, seed)
    chaos.followed.by_spark = by_spark
    chaos.change(2)
    chaos.kafka.ensure_topic(topic, 2)
    chaos.kafka.ensure_topic(chaos.published.offsets_topic, 1, {"cleanup.policy": "compact"})
    moments = [*MOMENTS, "", "both"]
    for each in range(rounds):
        moment = moments[(seed + each) % len(moments)]
        chaos.both() if moment == "both" else chaos.killed(moment, seed // len(moments) % 2)
        chaos.change(chaos.chance.randint(1, 3))
        if chaos.chance.random() < 0.4:
            chaos.publish()
    chaos.publish()
    assert chaos.deaths


@stack
@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_each_change_is_visible_once_whatever_is_killed(
    lake: Lakehouse, kafka: Kafka, broker: TestBroker, fresh_topic: str, rounds: int
) -> None:
    """A pass dies before its commit; then one after it, which is for the next as if it had ended."""
    assert kafka.connection
    run_chaos(lake, broker, fresh_topic, seed=0, rounds=rounds, by_spark=False)


@stack
@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_each_change_is_visible_once_in_many_histories(
    lake: Lakehouse, kafka: Kafka, broker: TestBroker, fresh_topic: str, seed: int
) -> None:
    assert kafka.connection
    run_chaos(lake, broker, fresh_topic, seed, rounds=7)
