"""A pass that publishes a table's changes as a process of its own, and dies by kill -9 at a given moment, or when killed.

Processes are forked from one that has imported all of this, because a test needs many.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.feeds.topic_feed import PublishedTopic, publish_changes
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import StreamBusy
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.kafka.kafka_transactions import TransactionalProducer

REFUSED = 75
"""Exit code of a process whose transaction another one has fenced."""

MOMENTS = ("sent", "committed", "begun", "sending", "committing")
"""When a pass may die: before the commit, when all messages have arrived; after it; before the first message; after that; in
the commit."""


@dataclass(frozen=True)
class Death:
    """When a pass dies; at no moment if it has no name.

    Attributes:
        moment: One of `MOMENTS`, or empty.
        number: In the transaction of this number, from 0.
        seed: Of what is up to chance.
        slow: Seconds that each message takes.
    """

    moment: str = ""
    number: int = 0
    seed: int = 0
    slow: float = 0


def started(published: PublishedTopic, death: Death, environment: Mapping[str, str]) -> BaseProcess:
    """Start a process with a pass."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "pyspark.sql.connect.session", "confluent_kafka.admin"])
    process = context.Process(target=run_pass, args=(published, death, {**os.environ, **environment}), daemon=True)
    process.start()
    return process


def run_pass(published: PublishedTopic, death: Death, environment: Mapping[str, str]) -> None:
    """Publish, and die."""
    os.environ.update(environment)
    _arrange(death)
    try:
        publish_changes(Kafka(), Spark(catalog=UnityCatalog()), published)
    except StreamBusy:
        os._exit(REFUSED)
    # Without the end of Spark's session, which takes as long as the pass.
    os._exit(0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arrange(death: Death) -> None:
    """Make the producer of this process die."""
    transactions, chance = 0, random.Random(death.seed)  # noqa: S311
    send, commit = TransactionalProducer.send, TransactionalProducer._commit

    def sending(self: TransactionalProducer, *record: Any) -> None:
        time.sleep(death.slow)
        if transactions == death.number and death.moment == "begun":
            _die()
        send(self, *record)
        if transactions == death.number and death.moment == "sending":
            # What the process has sent has to have arrived: else there is nothing to abort.
            self._producer.flush(10)
            _die()

    def committing(self: TransactionalProducer) -> None:
        nonlocal transactions
        dies = transactions == death.number
        if dies and death.moment == "sent":
            self._producer.flush(10)
            _die()
        if dies and death.moment == "committing":
            self._producer.flush(10)
            threading.Timer(chance.uniform(0, 0.02), _die).start()
        commit(self)
        if dies and death.moment in ("committing", "committed"):
            _die()
        transactions += 1

    TransactionalProducer.send, TransactionalProducer._commit = sending, committing  # pyright: ignore[reportAttributeAccessIssue]
