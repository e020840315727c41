"""A session cluster of Flink on this machine: a JobManager and TaskManagers, each a JVM that a test may kill."""

import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ratify_lakehouse.embedded.flink_launcher import OPENED
from ratify_lakehouse.embedded.flink_sink import flink_jars, kafka_connector, sink_jars
from ratify_lakehouse.embedded.java_runtime import choose_java
from tests.engines.flink_client import eventually

_CONFIG = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 900m
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
# Flink's own scripts derive these from the size of the process.
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 128m
taskmanager.memory.jvm-overhead.max: 128m
taskmanager.memory.task.heap.size: 400m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: 64m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.numberOfTaskSlots: 4
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
heartbeat.interval: 1000
heartbeat.timeout: 6000
"""
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"


def free_port() -> int:
    """A port of this machine that nothing uses."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@dataclass
class SessionCluster:
    """The cluster; `login` is the file by which its TaskManagers authenticate to Kafka, if they do."""

    folder: Path
    jars_dir: Path
    token: str
    login: Path | None = None
    rest: int = field(default_factory=free_port)
    rpc: int = field(default_factory=free_port)
    job_manager: "subprocess.Popen[bytes] | None" = None
    task_manager: "subprocess.Popen[bytes] | None" = None
    started: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.rest}"

    def start(self) -> str:
        """Start it, and return its URL."""
        (self.folder / "config.yaml").write_text(_CONFIG.format(rpc=self.rpc, rest=self.rest))
        self.start_job_manager()
        self.start_task_manager()
        return self.url

    def start_job_manager(self) -> None:
        self.job_manager = self._start(_JOB_MANAGER, "500m")
        eventually(lambda: _listens(self.rest))

    def start_task_manager(self) -> None:
        self.task_manager = self._start(_TASK_MANAGER, "700m")

    def kill_job_manager(self) -> None:
        """Kill it, and with it its jobs: it keeps them in memory."""
        _kill(self.job_manager)

    def kill_task_manager(self) -> None:
        """Kill it; its jobs restart on the next one."""
        _kill(self.task_manager)

    def stop(self) -> None:
        _kill(self.task_manager)
        _kill(self.job_manager)

    def _start(self, main: str, heap: str) -> "subprocess.Popen[bytes]":
        java = choose_java(None, os.environ)
        jars = [*sink_jars(self.jars_dir, java, print), *flink_jars()]
        jars += kafka_connector(self.jars_dir, java, print) if self.login else []
        command = [
            *(str(java.executable), f"-Xmx{heap}", "-XX:+UseSerialGC"),
            *([f"-Djava.security.auth.login.config={self.login}"] if self.login else []),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            *("-cp", os.pathsep.join(map(str, jars)), main, "--configDir", str(self.folder)),
        ]
        environment = os.environ | {"UNITY_TOKEN": self.token}
        self.started += 1
        with (self.folder / f"{self.started}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def _kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
