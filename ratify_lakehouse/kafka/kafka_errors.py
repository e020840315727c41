"""Error codes of Kafka and librdkafka, and the error of ours that each becomes."""

from typing import Any

from ratify_lakehouse.errors import BrokerDenied, BrokerRejected, BrokerUnavailable, StreamBusy, StreamError, TopicMissing

# All codes below are names, as `KafkaError.name` returns them; those of librdkafka itself begin with `_`.
DENIED = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
"""Kafka refuses the user: no repeat helps."""

MISSING = frozenset({"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"})
"""Kafka has no such topic or partition."""

EXISTS = "TOPIC_ALREADY_EXISTS"
"""Kafka has the topic that was to be created."""

END_OF_PARTITION = "_PARTITION_EOF"
"""A consumer has read all records of a partition."""

FENCED = frozenset({"_FATAL", "_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"})
"""Another producer has begun with the same transactional id, or Kafka has aborted a transaction that took too long. Later
calls of the producer fail with `_FATAL`."""

PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""A record of a transaction that was aborted."""

TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE"})
"""The client or the topic takes no message of that size."""

UNSETTLED = frozenset(
    {
        "_NOENT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""A new topic, or a broker that has just started, has no leader or coordinator for a moment: the request is sent again."""

UNAVAILABLE = UNSETTLED | {
    "_ALL_BROKERS_DOWN",
    "_MSG_TIMED_OUT",
    "_RESOLVE",
    "_SSL",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_WAIT_COORD",
    "BROKER_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "NETWORK_EXCEPTION",
    "NOT_CONTROLLER",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "REQUEST_TIMED_OUT",
}
"""No broker can answer at the moment. A code of `UNSETTLED` that does not go away ends here, too."""

CHECK_BROKER = (
    "Check that it runs (`ratify status`; `ratify up --kafka` starts the embedded one), that KAFKA_BOOTSTRAP and "
    "KAFKA_SECURITY_PROTOCOL are right, and for SSL that KAFKA_CA names the certificates."
)


def is_unsettled(error: BaseException) -> bool:
    """Return whether an exception of confluent_kafka has a code of `UNSETTLED`."""
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and error.args[0].name() in UNSETTLED


def translated(error: Any, bootstrap: str, message: str, topic: str = "") -> StreamError:
    """Return our error for one of confluent_kafka's.

    Args:
        error: The `KafkaError`.
        bootstrap: Address of the brokers.
        message: The text of the error, without secrets.
        topic: The topic in question, if there is one.
    """
    if error.name() in DENIED:
        return BrokerDenied(
            f"Kafka at {bootstrap} denied access: {message}. Check KAFKA_USERNAME, KAFKA_PASSWORD, KAFKA_SASL_MECHANISM "
            "and what this user may do."
        )
    if error.name() in MISSING:
        return TopicMissing(
            f"Kafka at {bootstrap} has no topic {topic or 'of that name'}: create it, or check the name in "
            "the table's declaration."
        )
    if error.name() in FENCED:
        return StreamBusy(
            f"Kafka at {bootstrap} refused the transaction: {message}. Another process publishes the same changes, or it "
            "took longer than Kafka permits (transaction.max.timeout.ms). Nothing of it is visible: run it again."
        )
    if error.name() in UNAVAILABLE:
        return BrokerUnavailable(f"Kafka at {bootstrap} did not answer: {message}. {CHECK_BROKER}")
    return BrokerRejected(f"Kafka at {bootstrap} rejected the request: {message}")
