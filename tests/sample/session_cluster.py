"""A session cluster of Flink on this machine: a JobManager and TaskManagers, each a JVM that a test may kill."""

import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from embedded.flink_launcher import OPENED
from embedded.flink_sink import flink_jars, kafka_connector, sink_jars
from embedded.java_runtime import choose_java
from tests.resources.flink_client import eventually

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


@dataclass
class SessionCluster:
    """The cluster; `login` is the file by which its TaskManagers authenticate to Kafka."""

    folder: Path
    jars_dir: Path
    token: str
    login: Path
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self) -> str:
        """Start it, and return its URL."""
        rpc, rest = _free_port(), _free_port()
        (self.folder / "config.yaml").write_text(_CONFIG.format(rpc=rpc, rest=rest))
        self._start(_JOB_MANAGER, "500m")
        eventually(lambda: _listens(rest))
        self.start_task_manager()
        return f"http://127.0.0.1:{rest}"

    def start_task_manager(self) -> None:
        self._start(_TASK_MANAGER, "700m")

    def kill_task_manager(self) -> None:
        last = self.processes.pop()
        last.kill()
        last.wait()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self, main: str, heap: str) -> None:
        java = choose_java(None, os.environ)
        jars = [*sink_jars(self.jars_dir, java, print), *flink_jars(), *kafka_connector(self.jars_dir, java, print)]
        command = [
            *(str(java.executable), f"-Xmx{heap}", "-XX:+UseSerialGC", f"-Djava.security.auth.login.config={self.login}"),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            *("-cp", os.pathsep.join(map(str, jars)), main, "--configDir", str(self.folder)),
        ]
        environment = os.environ | {"UNITY_TOKEN": self.token}
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
