"""Kafka client: connections for Spark and for this process; offsets, topics, producers.

Passwords come from the environment and go only into the settings of clients: never into a message, a log or the UI.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ratify_lakehouse.errors import BrokerUnavailable, RatifyError, StreamError, TopicMissing
from ratify_lakehouse.kafka.kafka_errors import CHECK_BROKER, DENIED, EXISTS, is_unsettled, translated
from ratify_lakehouse.redaction import redacted
from ratify_lakehouse.settings import KafkaConnection, Settings
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from confluent_kafka import Producer

Ask = Callable[[Callable[[], Mapping[Any, "Future[Any]"]]], dict[Any, Any]]
"""Sends a request to an admin client, again while a leader is missing, and returns the answers by the request's keys."""

Offsets = dict[str, dict[int, int]]
"""An offset for each partition of each topic."""

Isolation = Literal["read_committed", "read_uncommitted"]
"""Kafka's `isolation.level`: which records of transactions a reader sees, those that are committed or all."""

_JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of topics: that of the first record that still exists, and the one that the next record will get.

    To a reader of committed records a partition ends at the first transaction that is still open.
    """

    earliest: Offsets
    latest: Offsets

    def behind(self, position: Offsets) -> int:
        """Return how many records a reader at `position` has not read; a missing partition counts from its start."""
        return sum(
            max(0, end - max(position.get(topic, {}).get(partition, 0), self.earliest[topic][partition]))
            for topic, ends in self.latest.items()
            for partition, end in ends.items()
        )


class Kafka(dg.ConfigurableResource[Any]):
    """The Kafka that KAFKA_BOOTSTRAP and its companions name, else the broker of the running stack."""

    bootstrap: str = Field(default="", description="host:port, with commas; empty: KAFKA_BOOTSTRAP or the stack's broker")
    timeout_seconds: float = Field(default=10, gt=0, description="How long brokers may take to answer")

    @property
    def connection(self) -> KafkaConnection:
        """The brokers and credentials.

        Raises:
            NotConfigured: no broker is named, or a password is missing.
        """
        settings = Settings()
        if self.bootstrap:
            settings = settings.model_copy(update={"kafka_bootstrap": self.bootstrap})
        return settings.kafka_connection()

    def source_options(self) -> dict[str, str]:
        """Return the connection options of Spark's source and sink; they include the password."""
        options = {f"kafka.{name}": value for name, value in self.java_options().items()}
        login = self.login()
        return options | ({"kafka.sasl.jaas.config": login} if login else {})

    def java_options(self) -> dict[str, str]:
        """Return the connection options of Kafka's client in Java, without the password."""
        to = self.connection
        options = {"bootstrap.servers": to.bootstrap, "security.protocol": to.protocol}
        if to.protocol.startswith("SASL"):
            options["sasl.mechanism"] = to.mechanism
        if to.ca:
            # The text itself, because other machines may not have the file.
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": to.ca.read_text()}
        return options

    def login(self) -> str | None:
        """Return the login module of Kafka's client in Java, with the password; None where the brokers ask for none."""
        to = self.connection
        return _jaas(to) if to.protocol.startswith("SASL") else None

    def redacted(self, text: str) -> str:
        """Return a text, such as one of Spark's errors, without the password."""
        return redacted(text, self.secrets())

    def secrets(self) -> tuple[str, ...]:
        """Return the password as errors of clients may have it."""
        password = self.connection.password
        secret = password.get_secret_value() if password else ""
        return (secret, _quoted(secret)) if secret else ()

    def offset_range(self, topics: Sequence[str], isolation: Isolation = "read_uncommitted") -> OffsetRange:
        """Return which offsets the topics hold, as a reader of that isolation sees them.

        Raises:
            TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        how = {"isolation_level": level, "request_timeout": self.timeout_seconds}
        with self._admin() as (admin, ask):
            partitions = self._partitions(admin, ask, topics)
            found: list[Offsets] = []
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
                specs = dict.fromkeys(partitions, spec)
                asked = ask(partial(admin.list_offsets, specs, **how))
                offsets: Offsets = {topic: {} for topic in topics}
                for at, info in asked.items():
                    offsets[at.topic][at.partition] = info.offset
                found.append(offsets)
        return OffsetRange(*found)

    def ensure_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bool:
        """Create a topic if it is missing, with the broker's default replication; return whether it was created."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # pyright: ignore[reportPrivateImportUsage]

        with self._admin() as (admin, ask):
            try:
                self._partitions(admin, ask, [topic])
            except TopicMissing:
                new = NewTopic(topic, num_partitions=partitions, config=dict(config or {}))
                try:
                    ask(partial(admin.create_topics, [new]))
                except KafkaException as error:
                    # Another process has created it meanwhile.
                    if error.args[0].name() != EXISTS:
                        raise
                    return False
                return True
        return False

    def topic_id(self, topic: str) -> str:
        """Return Kafka's id of a topic: another one after it was deleted and created again.

        Raises:
            TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
        """
        with self._admin() as (admin, ask):
            return str(self._described(admin, ask, [topic])[topic].topic_id)

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the configuration of a topic, by name.

        Raises:
            TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
        """
        from confluent_kafka.admin import ConfigResource, ResourceType  # pyright: ignore[reportPrivateImportUsage]

        with self._admin() as (admin, ask), self.translating([], topic):
            (found,) = ask(partial(admin.describe_configs, [ConfigResource(ResourceType.TOPIC, topic)])).values()
        return {name: entry.value for name, entry in found.items()}

    @contextmanager
    def producer(self, **settings: Any) -> "Generator[Producer]":
        """A producer that writes each record once, in order; all have arrived after the block.

        Raises:
            BrokerUnavailable, BrokerDenied, TopicMissing: a record did not arrive.
        """
        from confluent_kafka import Producer

        client_errors, failed = list[Any](), list[Any]()
        with self.translating(client_errors):

            def arrived(error: Any, _record: Any) -> None:
                if error:
                    failed.append(error)

            conf: dict[str, Any] = {
                # An error of the client, such as a broker that is down for a while, is no failure: it keeps trying.
                **self.client_settings(client_errors),
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                # No call into Python for each record that arrived.
                "delivery.report.only.error": True,
                "on_delivery": arrived,
                "delivery.timeout.ms": 120_000,
                **settings,
            }
            producer = Producer(conf)
            try:
                yield producer
            finally:
                left = producer.flush(self.timeout_seconds * 3)
        if lost := failed or [error for error in client_errors if left and error.name() in DENIED]:
            raise self.translated(lost[0])
        if left:
            raise BrokerUnavailable(
                f"{counted(left, 'record')} did not reach Kafka at {self.connection.bootstrap}. {CHECK_BROKER}"
            )

    def show_progress(self, group: str, offsets: Offsets) -> None:
        """Commit offsets to a consumer group, so that Kafka's own tools show a stream's progress; we never read them."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        # Not by a consumer's commit, which may wait for a dead broker until it is back.
        with self._admin() as (admin, ask):
            committed = [ConsumerGroupTopicPartitions(group, [TopicPartition(*at) for at in _flat(offsets)])]
            ask(partial(admin.alter_consumer_group_offsets, committed, request_timeout=self.timeout_seconds))

    def progress(self, group: str, topics: Sequence[str]) -> Offsets:
        """Return the offsets that a consumer group has committed; partitions without one are left out."""
        from confluent_kafka import Consumer

        failed = list[Any]()
        with self._admin() as (admin, ask):
            partitions = self._partitions(admin, ask, topics)
        # An admin client that asks for them crashes the process if the group's coordinator has just moved.
        with self.translating(failed):
            consumer = Consumer({**self.client_settings(failed), "group.id": group, "enable.auto.commit": False})
            try:
                committed = self._settling()(consumer.committed, partitions, timeout=self.timeout_seconds)
            finally:
                consumer.close()
        offsets: Offsets = {topic: {} for topic in topics}
        for at in committed:
            if at.offset >= 0:
                offsets[at.topic][at.partition] = at.offset
        return offsets

    @contextmanager
    def _admin(self) -> Generator[tuple[Any, Ask]]:
        """An admin client, and the function that waits for its answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        failed = list[Any]()
        # Closed here: if Python collects it within the client's own thread, the process crashes.
        with self.translating(failed), AdminClient(self.client_settings(failed)) as admin:

            def answered(send: Callable[[], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
                futures = send()
                # librdkafka does not report a refused password as an answer, but tries again until the timeout.
                deadline = time.monotonic() + self.timeout_seconds + 5
                while time.monotonic() < deadline and wait(futures.values(), timeout=0.05).not_done:
                    admin.poll(0)
                    if denied := [error for error in failed if error.name() in DENIED]:
                        raise self.translated(denied[0])
                answers = {key: future.result(timeout=1) for key, future in futures.items()}
                # Answers about a group have an error for each partition.
                for at in (at for answer in answers.values() for at in getattr(answer, "topic_partitions", ())):
                    if at.error:
                        raise KafkaException(at.error)
                return answers

            def ask(send: Callable[[], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
                return self._settling()(answered, send)

            yield admin, ask

    def _settling(self) -> Retrying:
        """Repeats a request while a leader or coordinator is missing."""
        return Retrying(
            retry=retry_if_exception(is_unsettled),
            stop=stop_after_delay(self.timeout_seconds),
            wait=wait_fixed(0.1),
            reraise=True,
        )

    def _partitions(self, admin: Any, ask: Ask, topics: Iterable[str]) -> list[Any]:
        from confluent_kafka import TopicPartition

        described = self._described(admin, ask, topics)
        return [TopicPartition(topic, at.id) for topic, about in described.items() for at in about.partitions]

    def _described(self, admin: Any, ask: Ask, topics: Iterable[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        described = dict[str, Any]()
        for topic in topics:
            with self.translating([], topic):
                one = TopicCollection([topic])
                described |= ask(partial(admin.describe_topics, one, request_timeout=self.timeout_seconds))
        return described

    def client_settings(self, failed: list[Any]) -> dict[str, Any]:
        """Return the settings of a client of librdkafka; errors of its own thread are added to `failed`."""
        to = self.connection
        settings: dict[str, Any] = {
            "bootstrap.servers": to.bootstrap,
            "security.protocol": to.protocol,
            "socket.connection.setup.timeout.ms": int(self.timeout_seconds * 1000),
            "error_cb": failed.append,
            # It would log four times a second that no broker answers; the error that we raise reports it once.
            "log_level": 2,
        }
        if to.protocol.startswith("SASL"):
            password = to.password.get_secret_value() if to.password else ""
            settings |= {"sasl.mechanism": to.mechanism, "sasl.username": to.username, "sasl.password": password}
        if to.ca:
            settings["ssl.ca.location"] = str(to.ca)
        return settings

    @contextmanager
    def translating(self, failed: list[Any], topic: str = "") -> Generator[None]:
        """Translate librdkafka's errors into ours; an earlier refusal in `failed` is the cause of a later error."""
        from confluent_kafka import KafkaException

        try:
            yield
        except RatifyError:
            raise
        except KafkaException as error:
            causes = [*(cause for cause in failed if cause.name() in DENIED), error.args[0]]
            raise self.translated(causes[0], topic) from error
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka at {self.connection.bootstrap} did not answer. {CHECK_BROKER}") from error

    def translated(self, error: Any, topic: str = "") -> StreamError:
        """Return our error for one of confluent_kafka's, without the password."""
        return translated(error, self.connection.bootstrap, self.redacted(error.str()), topic)


def _flat(offsets: Offsets) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for topic, by in offsets.items() for partition, offset in by.items()]


def _jaas(to: KafkaConnection) -> str:
    password = to.password.get_secret_value() if to.password else ""
    who = f'username="{_quoted(to.username or "")}" password="{_quoted(password)}"'
    return f"{_JAAS_MODULES[to.mechanism]} required {who};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
