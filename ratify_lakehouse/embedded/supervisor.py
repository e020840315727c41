"""The supervisor of a stack: it starts the servers, publishes their addresses, and restarts those that die."""

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ratify_lakehouse.embedded import kafka_broker, spark_server
from ratify_lakehouse.embedded.catalog.server_settings import ServerSettings
from ratify_lakehouse.embedded.child_process import Child, Restarts, answers, free_port, wait_for
from ratify_lakehouse.embedded.embedded_errors import EmbeddedError, ProcessFailed, StackFailed
from ratify_lakehouse.embedded.private_files import Progress, write_private
from ratify_lakehouse.embedded.runtime_setup import Runtime, prepare
from ratify_lakehouse.embedded.stack_state import (
    CatalogState,
    KafkaState,
    SparkState,
    StackConfig,
    StackState,
    hold,
    read_state,
    state_file,
    write_state,
)

_CATALOG_START_S = 60
_SPARK_START_S = 180
_KAFKA_START_S = 120

# The engines' service principals, and what a new one is granted on the catalog: neither is the admin. DuckDB's is also
# Dagster's, which creates the schemas, and the tables where Spark is a session in its own process.
SPARK, DUCKDB = "ratify-spark", "ratify-duckdb"
_USE = ("USE_CATALOG", "USE_SCHEMA", "EXTERNAL_USE_SCHEMA", "SELECT", "MODIFY", "CREATE_SCHEMA", "CREATE_TABLE")
_ENGINES = {SPARK: (*_USE, "CREATE_EXTERNAL_TABLE"), DUCKDB: _USE}
# Settings of the catalog server that have the same name here, where None leaves them as they are by default.
_PASSED_ON = {"maintenance", "dropped_table_seconds"}


class Stopped(BaseException):
    """A signal, or the end of standard input, asked for the stop. It is no error, and nothing must catch it on its way."""


@dataclass
class Server:
    """One server of the stack: how to launch its process, and how to wait until it answers."""

    name: str
    launch: Callable[[], Child]
    ready: Callable[[Child], None]
    restarts: Restarts = field(default_factory=Restarts)
    child: Child | None = None


class Supervisor:
    """The servers of one home, from start to stop."""

    def __init__(self, config: StackConfig, progress: Progress) -> None:
        self._config = config
        self._progress = progress
        self._servers: list[Server] = []
        self._catalog: CatalogState | None = None
        self._spark: SparkState | None = None
        self._kafka: KafkaState | None = None

    def run(self, pid: int) -> None:
        """Start everything, publish the state under `pid`, and watch until `Stopped` is raised in this thread.

        Raises:
            StackRunning: another supervisor holds the home.
            StackFailed: a server died more often than it may.
            EmbeddedError: a server could not be started.
        """
        home = self._config.home
        with hold(home):
            try:
                _await_leftovers(home, self._progress)
                self._start_all(pid)
                self._progress("ready")
                while True:
                    self._revive(pid)
                    self._rotate_logs()
                    time.sleep(0.2)
            finally:
                _ignore_signals()
                state_file(home).unlink(missing_ok=True)
                self._stop_all()

    def _start_all(self, pid: int) -> None:
        config = self._config
        runtime = prepare(config, self._progress) if config.spark or config.kafka else None
        if config.unity_host:
            self._catalog = CatalogState(url=config.unity_host, name=config.catalog, token_file=_unity_token(config))
        else:
            catalog_port = free_port(config.catalog_port, "catalog server")
            self._start(Server("catalog server", lambda: _launch_catalog(config, catalog_port), self._catalog_ready))
        if runtime and config.kafka:
            broker = kafka_broker.Broker(
                runtime.java,
                runtime.class_path,
                config.home,
                free_port(config.kafka_port, "Kafka broker"),
                free_port(0, "controller of Kafka"),
                config.kafka_password_file,
            )
            kafka_broker.prepare(broker)
            self._start(
                Server(
                    "Kafka broker",
                    lambda: Child("the Kafka broker", kafka_broker.command(broker), broker.log),
                    lambda child: self._kafka_ready(child, broker),
                )
            )
        if runtime and config.spark:
            server = self._spark_server(runtime, free_port(config.spark_port, "Spark Connect server"))
            log = config.home / "logs" / "spark-jvm.log"
            self._start(
                Server(
                    "Spark Connect server",
                    lambda: Child(
                        "the Spark Connect server", spark_server.command(server), log, environ=spark_server.ENVIRON
                    ),
                    lambda child: self._spark_ready(child, server),
                )
            )
        self._publish(pid)

    def _start(self, server: Server) -> None:
        if server not in self._servers:
            self._servers.append(server)
        self._progress(f"starting the {server.name}")
        began = time.monotonic()
        server.child = server.launch()
        server.ready(server.child)
        self._progress(f"the {server.name} is up ({time.monotonic() - began:.1f} s)")

    def _revive(self, pid: int) -> None:
        for server in self._servers:
            while server.child and server.child.exit_code is not None:
                code = server.child.exit_code
                pause = server.restarts.next_pause()
                if pause is None:
                    raise StackFailed(
                        f"the {server.name} keeps dying (exit code {code}): {server.restarts}. See its log: "
                        f"{server.child.log}"
                    )
                self._progress(f"the {server.name} died (exit code {code}): starting it again in {pause:.2f} s")
                time.sleep(pause)
                server.child.stop()
                try:
                    self._start(server)
                    self._publish(pid)
                except ProcessFailed as failure:
                    self._progress(str(failure))
                    server.child.stop()

    def _rotate_logs(self) -> None:
        for server in self._servers:
            if server.child:
                server.child.rotate_log()

    def _stop_all(self) -> None:
        # Spark first: it may be in the middle of a commit that the catalog has to answer.
        for server in reversed(self._servers):
            if server.child:
                self._progress(f"stopping the {server.name}")
                server.child.stop()

    def _publish(self, pid: int) -> None:
        if self._catalog:
            write_state(self._config.home, StackState(pid=pid, catalog=self._catalog, spark=self._spark, kafka=self._kafka))

    def _catalog_ready(self, child: Child) -> None:
        line = child.wait_until(lambda: _first_line(_ready_file(self._config)), _CATALOG_START_S)
        ready: dict[str, str] = json.loads(line)
        self._catalog = CatalogState(
            url=ready["url"],
            name=ready["catalog"],
            token_file=Path(ready["token_file"]),
            engine_token_file=_token_file(self._config, DUCKDB),
            pid=child.pid,
        )

    def _spark_ready(self, child: Child, server: spark_server.SparkServer) -> None:
        child.wait_until(lambda: answers(server.port) or None, _SPARK_START_S)
        self._spark = SparkState(remote=server.remote, pid=child.pid)

    def _kafka_ready(self, child: Child, broker: kafka_broker.Broker) -> None:
        child.wait_until(lambda: answers(broker.port) or None, _KAFKA_START_S)
        self._kafka = KafkaState(bootstrap=broker.bootstrap, pid=child.pid, password_file=broker.password_file)

    def _spark_server(self, runtime: Runtime, port: int) -> spark_server.SparkServer:
        config, catalog = self._config, self._catalog
        if catalog is None:
            raise EmbeddedError("Spark needs a catalog to attach: start the catalog server before it")
        attached = spark_server.CatalogEndpoint(catalog.name, catalog.url, **_credentials(config, catalog))
        s3 = spark_server.s3_conf(config.s3_endpoint, config.s3_region) if config.s3 else {}
        return spark_server.SparkServer(runtime.java, runtime.class_path, config.home, port, (attached,), s3)


def _ignore_signals() -> None:
    """Do not let a second Ctrl-C interrupt the stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _launch_catalog(config: StackConfig, port: int) -> Child:
    home = config.home
    ready = _ready_file(config)
    ready.parent.mkdir(parents=True, exist_ok=True)
    (home / "secrets").mkdir(mode=0o700, exist_ok=True)
    settings = ServerSettings(
        state_dir=home / "catalog",
        storage_root=config.storage_root or str(home / "lake"),
        token_file=_token_file(config, "catalog"),
        port=port,
        catalog=config.catalog,
        principals=_ENGINES,
        exit_with_stdin=True,
        **config.model_dump(include=_PASSED_ON, exclude_none=True),
        **config.s3,
    )
    settings_file = home / "catalog" / "server.json"
    write_private(settings_file, settings.model_dump_json(indent=2))
    command = [sys.executable, "-m", "ratify_lakehouse.embedded.catalog", str(settings_file)]
    return Child("the catalog server", command, home / "logs" / "catalog.log", stdout=ready)


def _token_file(config: StackConfig, name: str) -> Path:
    """Return the file of the token of the admin (`catalog`) or of a service principal."""
    return config.home / "secrets" / f"{name}.token"


def _ready_file(config: StackConfig) -> Path:
    return config.home / "catalog" / "ready.json"


def _first_line(file: Path) -> str | None:
    line, end, _ = file.read_text().partition("\n")
    return line if end else None


def _unity_token(config: StackConfig) -> Path:
    if config.unity_token_file is None:
        raise StackFailed(f"{config.unity_host} needs a token: name the file that holds it by unity_token_file")
    return config.unity_token_file


def _credentials(config: StackConfig, catalog: CatalogState) -> dict[str, str]:
    """Return the credentials that Spark uses on the catalog."""
    if config.unity_client_id and config.unity_secret_file:
        return {"client_id": config.unity_client_id, "client_secret": config.unity_secret_file.read_text().strip()}
    token_file = _token_file(config, SPARK) if catalog.pid else catalog.token_file
    return {"token": token_file.read_text().strip()}


def _await_leftovers(home: Path, progress: Progress) -> None:
    """Wait for the servers of a killed supervisor: they end within seconds, and may hold the ports until then."""
    stale = read_state(home)
    state_file(home).unlink(missing_ok=True)
    if stale is None:
        return
    servers = (stale.catalog, stale.spark, stale.kafka)
    pids = [server.pid for server in servers if server and server.pid and psutil.pid_exists(server.pid)]
    if pids:
        progress("the last stack here was killed: waiting for its servers to end")
    wait_for(lambda: None if any(map(psutil.pid_exists, pids)) else True, 10, every=0.1)
