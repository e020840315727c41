"""The component `TopicFeed`: a Kafka topic with the changes of a table, declared in YAML."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.feeds.feed_component import FeedComponent, FeedParameters
from ratify_lakehouse.components.feeds.topic_feed import PublishedTopic, publish_changes
from ratify_lakehouse.components.feeds.topic_position import FeedPosition, read_position
from ratify_lakehouse.components.personal_columns import MarkedTable, topic_name
from ratify_lakehouse.components.stream.record_table import topic_key, topic_spec
from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE
from ratify_lakehouse.components.table_policies import with_policies
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import SourceNotConfigured, TopicMissing, UnsafeDeclaration
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.settings import catalog_name

_POSITION = "position"
# The topic with the position has a longer name, and Kafka permits 249 characters.
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,241}")


class TopicFeedParameters(FeedParameters):
    """Options of `dg scaffold defs ratify_lakehouse.TopicFeed`."""

    topic: str = Field(description="Kafka's topic, such as orders.changes")


class TopicFeedScaffolder(dg.Scaffolder[TopicFeedParameters]):
    """Writes the `defs.yaml` of a topic with the changes of a table."""

    @classmethod
    def get_scaffold_params(cls) -> type[TopicFeedParameters]:
        """Return the command's options."""
        return TopicFeedParameters

    def scaffold(self, request: dg.ScaffoldRequest[TopicFeedParameters]) -> None:
        """Write it."""
        given = request.params
        attributes = {"description": given.description, "table": given.table, "keys": [given.key], "topic": given.topic}
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(TopicFeedScaffolder)
class TopicFeed(FeedComponent):
    """A Kafka topic with a message for each changed row of a table: the row before and after, in Debezium's words.

    Readers of committed records see each change exactly once, those of one key in order.
    """

    topic: str = Field(description="Kafka's topic; it is created if it is missing, and so is `<topic>.offsets`")
    partitions: int = Field(default=1, ge=1, description="Partitions of the topic, if it is created")
    from_version: int = Field(
        default=0,
        ge=0,
        description="Version of the table to start or continue from; earlier changes are left out",
    )

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`: the topic has what the table has."""
        yield MarkedTable(topic_name(self.topic), reads=[str(self.followed)])

    @cached_property
    def published(self) -> PublishedTopic:
        """The topic and its table.

        Raises:
            UnsafeDeclaration: the attributes are wrong.
        """
        if not _TOPIC.fullmatch(self.topic):
            raise UnsafeDeclaration(
                f"{self.topic!r} is not a topic name: Kafka permits letters, digits, '.', '_' and '-', here up to 241.",
                "topic",
            )
        return PublishedTopic(str(self.followed), tuple(self.keys), self.topic, self.partitions, self.from_version)

    def declared_defs(self) -> dg.Definitions:
        """Return the topic as an asset, and the check of its position."""
        published, table = self.published, dg.AssetKey(self.followed.key_path(catalog_name()))
        spec = topic_spec(self.topic).replace_attributes(
            deps=[table],
            description=self.description,
            owners=[f"team:{self.owner}"],
            tags=self.tags,
            # Kafka is optional, and "Materialize all" is for everybody.
            skippable=True,
        )

        @dg.multi_asset(
            name=f"{self.folder.parent.name}__{self.folder.name}",
            op_tags={SIDE_BY_SIDE: "spark"},
            specs=[with_policies(spec)],
        )
        @in_one_line(self.topic, lambda: self.personal.concerned(str(self.followed)))
        def topic(context: dg.AssetExecutionContext, kafka: Kafka, spark: Spark) -> Iterator[dg.MaterializeResult[Any]]:
            try:
                yield _publish(kafka, spark, published, _reported(context.instance, published))
            except SourceNotConfigured as error:
                context.log.warning("%s is skipped. %s", published.topic, error)

        return dg.Definitions(assets=[topic], asset_checks=[_position_check(published)])


def _reported(instance: dg.DagsterInstance, published: PublishedTopic) -> FeedPosition | None:
    """The position that the last materialization of the topic reported."""
    event = instance.get_latest_materialization_event(topic_key(published.topic))
    metadata: Mapping[str, Any] = event.asset_materialization.metadata if event and event.asset_materialization else {}
    return FeedPosition(**metadata[_POSITION].value) if _POSITION in metadata else None


def _publish(
    kafka: Kafka, spark: Spark, published: PublishedTopic, reported: FeedPosition | None
) -> dg.MaterializeResult[Any]:
    began = time.monotonic()
    done = publish_changes(kafka, spark, published, reported)
    position = asdict(done.position) if done.position else {}
    last = done.position.version if done.position else -1
    read = f"{done.first} to {last}" if done.first <= last else "none"
    return dg.MaterializeResult(
        metadata={
            "messages": done.messages,
            "versions read": read,
            "transactions": done.transactions,
            "seconds": round(time.monotonic() - began, 3),
            **({_POSITION: dg.MetadataValue.json(position)} if position else {}),
        },
        data_version=dg.DataVersion(f"{done.position.table_id}.{done.position.version}" if done.position else ""),
    )


def _position_check(published: PublishedTopic) -> dg.AssetChecksDefinition:
    key = topic_key(published.topic)
    name = "position_as_reported"
    description = "The topic has the changes up to the reported version."

    @dg.multi_asset_check(
        name=f"{re.sub('[^A-Za-z0-9]', '_', published.topic)}_position",
        specs=[check_spec(name, asset=key, description=description)],
    )
    @in_one_line(published.topic)
    def check(context: dg.AssetCheckExecutionContext, kafka: Kafka) -> Iterator[dg.AssetCheckResult]:
        reported = _reported(context.instance, published)
        found, topic_id = None, None
        with suppress(TopicMissing):
            found = read_position(kafka, f"{catalog_name()}.{published.table}", published.offsets_topic)
        with suppress(TopicMissing):
            topic_id = kafka.topic_id(published.topic)
        yield check_result(key, name, position_as_reported(reported, found, topic_id))

    return check


def position_as_reported(reported: FeedPosition | None, found: FeedPosition | None, topic_id: str | None) -> Finding:
    """Check that the position of a topic is not before the one that the last materialization reported, and is this topic's.

    Args:
        reported: What the materialization reported.
        found: The position.
        topic_id: Of the topic; None if there is none.
    """
    numbers = {"version reported": reported.version if reported else -1, "version found": found.version if found else -1}
    wrong = _wrong(reported, found, topic_id) if reported else ""
    right = "The topic has the changes up to the reported version." if reported else "Nothing was reported yet."
    return Finding(not wrong, f"{wrong} The next run says how to continue." if wrong else right, numbers)


def _wrong(reported: FeedPosition, found: FeedPosition | None, topic_id: str | None) -> str:
    if topic_id is None:
        return "The topic is gone, and its changes with it."
    if found is None:
        return "The position is gone."
    if found.topic_id not in ("", topic_id):
        return "The topic was created again, and lacks the changes up to its position."
    if found.table_id != reported.table_id:
        return "The position is of another table of that name."
    return "The position is before the one that was reported." if found.version < reported.version else ""
