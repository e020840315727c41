"""What the whole suite shares: one real stack for all of its processes, started by the first test that asks."""

import os
import re
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from ratify_lakehouse.embedded.kafka_broker import EVENT_HUBS_USER
from ratify_lakehouse.embedded.stack_state import KafkaState, StackConfig, StackState
from ratify_lakehouse.process_memory import keep_imported
from ratify_lakehouse.settings import Settings
from tests import reaper
from tests.shared_stack import shared, shared_folder, shared_secret

if TYPE_CHECKING:
    from ratify_lakehouse.kafka.kafka_client import Kafka

pytest_plugins = ["tests.run_plugin", "tests.unit_promise"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job begins with Ctrl-C ignored. Dagster would take that over for SIGTERM, and every process that a
    # test starts would inherit it and could not be stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# What `make test` gives to Java. The Spark of the whole run lives long enough for the optimizing compiler to save a third.
_NOT_OPTIMIZED = "-XX:TieredStopAtLevel=1"
# How long an example takes says nothing on a busy machine.
settings.register_profile("ratify", deadline=None)
settings.load_profile("ratify")
# Fixtures that start a server, a command or a cluster for a test.
_SERVERS = frozenset(
    {"stack", "server", "other", "elsewhere", "target", "short_lived", "new_home", "s3", "sqs_url", "flink", "workspace"}
)


def pytest_configure(config: pytest.Config) -> None:
    """Once a run: in the process that starts the workers, or the only one."""
    if not hasattr(config, "workerinput"):
        reaper.start()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which no test is chosen, and folders of such files: to import them takes longer than many tests."""
    left_out = re.findall(r"not (stack|server|browser)", config.option.markexpr or "")
    files = [*collection_path.rglob("test_*.py")] if collection_path.is_dir() else [collection_path]
    if not left_out or not files or files[0].suffix != ".py":
        return None
    of_all = re.compile(rf"^pytestmark = (?:.*|\[[^\]]*)pytest\.mark\.({'|'.join(left_out)})\b", re.MULTILINE)
    return all(of_all.search(file.read_text()) for file in files) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are no unit tests."""
    for item in items:
        if _SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
    # All test modules are imported now.
    keep_imported()


def say(message: str) -> None:
    """Progress of long starts; pytest shows it beside a failure, or at once with -s."""
    sys.stderr.write(f"{message}\n")


@pytest.fixture(scope="session")
def jars_dir() -> Path:
    """Where the JVM jars are, which are downloaded once for all runs and projects."""
    return Settings().jars


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the run's stack: no state is left over from another run."""
    return shared_folder(tmp_path_factory, "ratify")


@pytest.fixture(scope="session")
def stack(home: Path, jars_dir: Path) -> Generator[StackState]:
    """The catalog server and the Spark Connect server, for the whole run.

    Where UNITY_HOST and UNITY_TOKEN name another Unity Catalog server, its catalog ratifies what the suite commits.
    """
    # The disk has room for what all tests drop within some minutes.
    config = StackConfig(home=home, jars_dir=jars_dir, jar_sets=("spark", "kafka"), dropped_table_seconds=300)
    if (settings := Settings()).unity_host and settings.unity_token:
        (token_file := home / "unity-token").write_text(settings.unity_token.get_secret_value())
        token_file.chmod(0o600)
        config = config.model_copy(update={"unity_host": settings.unity_host, "unity_token_file": token_file})
    with ExitStack() as running_stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", os.environ.get("JAVA_TOOL_OPTIONS", "").replace(_NOT_OPTIMIZED, ""))
            state = running_stack.enter_context(shared(config, say))
        yield state


@pytest.fixture(scope="module")
def spark(stack: StackState) -> Generator[SparkSession]:
    """A Connect session on that stack, for one module: the end of a run in another may stop it, for PySpark may share it."""
    assert stack.spark is not None
    session = SparkSession.builder.remote(stack.spark.remote).create()
    yield session
    session.stop()


@dataclass(frozen=True)
class TestBroker:
    """A Kafka broker that asks for a password, with the settings of whoever knows it."""

    __test__ = False

    home: Path
    state: KafkaState
    password: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KAFKA_BOOTSTRAP": self.state.bootstrap,
            "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA_SASL_MECHANISM": "PLAIN",
            "KAFKA_USERNAME": EVENT_HUBS_USER,
            "KAFKA_PASSWORD": self.password,
        }


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Generator[TestBroker]:
    """The Kafka broker of the run, which starts with the first test that asks; each test has topics of its own."""
    home = shared_folder(tmp_path_factory, "kafka")
    # A connection string of Azure Event Hubs, and all else that JAAS, a properties file and JSON could stumble over.
    hub = "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey"
    password_file = home / "password"
    password = shared_secret(password_file, lambda: f'{hub};SharedAccessKey=k+/{uuid4().hex}"\\$=;EntityPath=events')
    config = StackConfig(home=home, jars_dir=jars_dir, spark=False, kafka=True, kafka_password_file=password_file)
    with shared(config, say) as state:
        assert state.kafka is not None
        yield TestBroker(home, state.kafka, password)


@pytest.fixture
def kafka(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> "Kafka":
    """Kafka as the settings name it."""
    # With Dagster, which the process that starts the others has no use for.
    from ratify_lakehouse.kafka.kafka_client import Kafka

    for name, value in broker.environment.items():
        monkeypatch.setenv(name, value)
    return Kafka()


@pytest.fixture
def fresh_topic() -> str:
    """A topic name that no other test has; the test creates it."""
    return f"t-{uuid4().hex[:12]}"


@pytest.fixture
def fresh_schema() -> str:
    """A schema name that no other test has; the test creates it."""
    return f"s_{uuid4().hex[:12]}"
