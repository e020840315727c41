"""A Kafka broker on this machine: one process that is broker and controller (KRaft), with its data under the home."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ratify_lakehouse.embedded.child_process import LOCALHOST
from ratify_lakehouse.embedded.embedded_errors import ProcessFailed
from ratify_lakehouse.embedded.java_runtime import Java, argument_file, jvm_tuning, log4j_properties
from ratify_lakehouse.embedded.jvm_jars import pyspark_jars
from ratify_lakehouse.embedded.private_files import write_private

USER = "ratify"
"""The user that a broker with a password accepts."""

EVENT_HUBS_USER = "$ConnectionString"
"""The same user under the name that every client of Azure Event Hubs has, so that their settings can be tried here."""

MAX_RECORD_BYTES = 16 * 2**20

_HEAP_MB = 384


@dataclass(frozen=True)
class Broker:
    """One broker: its home, its ports, and the file of its password, if it requires one."""

    java: Java
    class_path: tuple[Path, ...]
    home: Path
    port: int
    controller_port: int
    password_file: Path | None = None

    @property
    def bootstrap(self) -> str:
        """The address for KAFKA_BOOTSTRAP."""
        return f"{LOCALHOST}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder of all records."""
        return self.home / "kafka"

    @property
    def log(self) -> Path:
        """The output of the process, with log4j's warnings."""
        return self.home / "logs" / "kafka.log"

    @property
    def properties(self) -> Path:
        """The settings, with the password if there is one."""
        return self.home / "secrets" / "kafka.properties"


def prepare(broker: Broker) -> None:
    """Write the broker's settings and, in a new home, format its folder.

    Raises:
        ProcessFailed: the folder cannot be formatted.
    """
    for directory in (broker.data, broker.log.parent):
        directory.mkdir(parents=True, exist_ok=True)
    _log4j(broker).write_text(log4j_properties(broker.log.with_name("kafka-server.log")))
    write_private(broker.properties, "".join(f"{key}={value}\n" for key, value in settings(broker).items()))
    if (broker.data / "meta.properties").exists():
        return
    storage_tool = [*_jvm(broker), "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    arguments = ["--cluster-id", uuid4().hex[:22], "--config", str(broker.properties)]
    with broker.log.open("a") as log:
        done = subprocess.run([*storage_tool, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise ProcessFailed("the storage tool of Kafka", f"failed with exit code {done.returncode}", broker.log)


def command(broker: Broker) -> list[str]:
    """Return the command that starts the broker, which ends when its standard input does."""
    return [*_jvm(broker), "ratify.ParentWatch", "kafka.Kafka", str(broker.properties)]


def settings(broker: Broker) -> dict[str, str]:
    """Return the settings of the broker: one machine, few topics, no other broker to replicate to."""
    listener = "SASL_PLAINTEXT" if broker.password_file else "PLAINTEXT"
    one = "1"
    return {
        "process.roles": "broker,controller",
        "node.id": one,
        "controller.quorum.voters": f"1@{LOCALHOST}:{broker.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener}://{LOCALHOST}:{broker.port},CONTROLLER://{LOCALHOST}:{broker.controller_port}",
        "advertised.listeners": f"{listener}://{broker.bootstrap}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{listener}:{listener}",
        "inter.broker.listener.name": listener,
        "log.dirs": str(broker.data),
        # A misspelt topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MAX_RECORD_BYTES),
        "replica.fetch.max.bytes": str(MAX_RECORD_BYTES),
        "offsets.topic.replication.factor": one,
        "offsets.topic.num.partitions": one,
        "transaction.state.log.replication.factor": one,
        "transaction.state.log.min.isr": one,
        "transaction.state.log.num.partitions": one,
        "share.coordinator.state.topic.replication.factor": one,
        "share.coordinator.state.topic.min.isr": one,
        "share.coordinator.state.topic.num.partitions": one,
        "group.initial.rebalance.delay.ms": "0",
        # After a kill -9 the controller waits this long before it fences the broker that it knew.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "1000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # Kafka's own default, 128 MB for the keys of compacted topics, is a third of the heap.
        "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
        **(_password(broker.password_file) if broker.password_file else {}),
    }


def _password(file: Path) -> dict[str, str]:
    """The settings that accept one user only. A properties file reads a backslash as an escape, and so does JAAS."""
    password = file.read_text().strip()
    quoted = password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{name}="{quoted}"' for name in (USER, EVENT_HUBS_USER))
    jaas = f'{module} required username="{USER}" password="{quoted}" {users};'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }


def _jvm(broker: Broker) -> list[str]:
    """Return the start of each command. The class path is in a file, because it would fill a list of processes."""
    arguments = broker.home / "kafka.args"
    class_path = ":".join([*map(str, broker.class_path), f"{pyspark_jars()}/*"])
    options = [
        f"-Xmx{_HEAP_MB}m",
        *jvm_tuning(os.cpu_count() or 1),
        f"-Dlog4j2.configurationFile={_log4j(broker)}",
        *("-cp", class_path),
    ]
    arguments.write_text(argument_file(options))
    return [str(broker.java.executable), f"@{arguments}"]


def _log4j(broker: Broker) -> Path:
    return broker.home / "kafka-log4j2.properties"
