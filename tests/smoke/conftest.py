"""One home and one stack for the demo, the command line, the browser's pages and a project of one's own.

The files of `one_process("smoke")` run in one process and in their order. What the first ones leave, the others read.
"""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import psutil
import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from ratify_lakehouse.embedded.embedded_stack import status
from ratify_lakehouse.embedded.stack_state import StackState
from tests.cli.ratify_command import invoke, ratify


@dataclass(frozen=True)
class Smoke:
    """A home in which `ratify up` has started a stack; `printed` is what it said."""

    home: Path
    state: StackState
    printed: str

    @property
    def remote(self) -> str:
        assert self.state.spark is not None
        return self.state.spark.remote

    @property
    def shell(self) -> dict[str, str]:
        """The environment of a shell in which another project uses this stack."""
        token = self.state.catalog.token_file.read_text().strip()
        return {"UNITY_HOST": self.state.catalog.url, "UNITY_TOKEN": token, "SPARK_REMOTE": self.remote}


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Generator[Smoke]:
    """`ratify up` in a home of its own, and `ratify down`, after which nothing of it runs."""
    home = tmp_path_factory.mktemp("smoke") / "home"
    home.mkdir()
    up = ratify(home, "up")
    assert up.returncode == 0, up.stdout + up.stderr
    state = status(home)
    assert state is not None
    assert state.spark is not None
    yield Smoke(home, state, up.stdout)
    ours = [psutil.Process(pid) for pid in (state.pid, state.catalog.pid, state.spark.pid) if pid]
    assert ratify(home, "down").returncode == 0
    _, alive = psutil.wait_procs(ours, timeout=30)
    assert not alive


@pytest.fixture(scope="session")
def demo(smoke: Smoke) -> CompletedProcess[str]:
    """The demo, over two days and one more, as it was run and printed."""
    done = ratify(smoke.home, "demo", "--days", "2", "--more", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def only_session(smoke: Smoke) -> Generator[None]:
    """Let commands within this process reach this stack's Spark: PySpark would hand out a session to another one instead."""
    kept = getattr(ConnectSession._active_session, "session", None), ConnectSession._default_session
    ConnectSession._active_session.session, ConnectSession._default_session = None, None
    yield
    ConnectSession._active_session.session, ConnectSession._default_session = kept


def selected(smoke: Smoke, query: str) -> list[dict[str, object]]:
    """Return the rows of a query, by DuckDB."""
    asked = invoke(smoke.home, "sql", query, "--engine", "duckdb", "--json")
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)
