"""The position of a topic with the changes of a table, and whether the next pass may go on from it.

A pass that went on from a position that was lost, or was set back, would publish again what the topic has. One that went on
in a topic that was created again would leave in it only what comes later.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from ratify_lakehouse.errors import PositionUnsafe
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.kafka.kafka_transactions import last_committed


@dataclass(frozen=True)
class FeedPosition:
    """The version of a table up to which a topic has its changes.

    Attributes:
        table_id: Of the table; another one after it was dropped and created again.
        version: Its version.
        topic_id: Kafka's id of the topic, likewise; empty where it was not recorded.
        from_version: What the declaration had as `from_version`.
    """

    table_id: str
    version: int
    topic_id: str = field(default="", compare=False)
    from_version: int = field(default=0, compare=False)

    def to_json(self) -> bytes:
        """Return the record of the position."""
        return json.dumps(asdict(self)).encode()

    def before(self, other: "FeedPosition", table_id: str) -> bool:
        """Return whether another position is a later one of the table that has this id now."""
        return other.table_id == table_id and (self.table_id != table_id or self.version < other.version)


@dataclass(frozen=True)
class FoundTopic:
    """What is known of a topic before a pass.

    Attributes:
        name: Its name.
        id: Kafka's id of it.
        has_records: Returns whether it has records that were committed.
        position: Its position, if there is one.
        reported: The position that the last materialization reported.
    """

    name: str
    id: str
    has_records: Callable[[], bool]
    position: FeedPosition | None
    reported: FeedPosition | None

    def last(self, table_id: str) -> FeedPosition | None:
        """Return the position to go on from, given the id that the table has now: the later one, if both are known."""
        position, reported = self.position, self.reported
        return reported if position and reported and position.before(reported, table_id) else position


def position_key(full_name: str) -> bytes:
    """Return the key of the record with the position of a table."""
    return json.dumps({"table": full_name}).encode()


def read_position(kafka: Kafka, full_name: str, offsets_topic: str) -> FeedPosition | None:
    """Return the position of a table in a topic; None if nothing was published.

    Raises:
        TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
    """
    found = last_committed(kafka, offsets_topic, position_key(full_name))
    return FeedPosition(**json.loads(found)) if found else None


def check_position(found: FoundTopic, table_id: str, from_version: int) -> None:
    """Check that a pass that goes on from the position of a topic neither repeats changes nor leaves some out.

    Args:
        found: The topic.
        table_id: Of the table, now.
        from_version: See `given_version`: a version after what the topic is known to have says how to go on.

    Raises:
        PositionUnsafe: it might; the error says what to do.
    """
    position, reported, topic = found.position, found.reported, found.name
    if position and position.topic_id and position.topic_id != found.id:
        # Where the table was created again, too, nothing of it can be missing, nor come again.
        if position.table_id == table_id and from_version <= position.version:
            raise PositionUnsafe(
                f"The topic {topic} was created again: it lacks the changes up to version {position.version}, which its "
                f"position in {topic}.offsets names. Delete {topic}.offsets as well, and leave out `from_version`, so that "
                f"all changes are published that the feed still has; or set `from_version: {position.version + 1}` in its "
                "defs.yaml to leave them out."
            )
    elif position and reported and position.before(reported, table_id):
        _check_given(topic, f"is set back to version {position.version}", reported, from_version)
    elif position is None and reported and reported.topic_id == found.id and reported.table_id == table_id:
        # Its records may have expired.
        _check_given(topic, "is gone", reported, from_version)
    elif position is None and from_version <= _known(reported, table_id) and found.has_records():
        raise PositionUnsafe(
            f"The topic {topic} has records, but {topic}.offsets has no position for it, so it is unknown which changes "
            "it has. Set `from_version` in its defs.yaml to the first version that it does not have; or delete both "
            "topics, and leave out `from_version`, so that all changes are published that the feed still has."
        )


def _known(reported: FeedPosition | None, table_id: str) -> int:
    return reported.version if reported and reported.table_id == table_id else 0


def _check_given(topic: str, what: str, reported: FeedPosition, from_version: int) -> None:
    if from_version <= reported.version:
        raise PositionUnsafe(
            f"The position of {topic} in {topic}.offsets {what}, and its last materialization reported version "
            f"{reported.version}: what follows would be published again. Set `from_version: {reported.version + 1}` in "
            f"its defs.yaml to continue from there; or delete {topic} and {topic}.offsets, and leave out `from_version`, "
            "so that all changes are published that the feed still has."
        )
