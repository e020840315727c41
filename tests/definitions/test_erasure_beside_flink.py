"""An erasure beside jobs of Flink: one that runs has read records before, and commits them after it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions.subject_erasure import SubjectErasure
from ratify_lakehouse.definitions.subject_survey import Subject, SubjectSurvey
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import NotConfigured, RatifyError, TableInUse
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.components.declared_projects import Project, project
from tests.embedded.catalog.catalog_thread import catalog_here

pytestmark = pytest.mark.server

__all__ = ["project"]

CLICKS = """type: ratify_lakehouse.FlinkSql
attributes:
  description: Clicks
  topics: [{{topic: clicks, name: clicks}}]
  keys: [offset]
  columns:
    - {{name: offset, type: bigint}}
    - {{name: key, type: string{more}}}
"""
QUERY = "SELECT `offset`, `key` FROM clicks\n"


@pytest.fixture
def erasure(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RatifyError]]:
    """Returns the error of an erasure that goes on to look for a declaration of the subject, unless it is refused before."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    project.write("gold", "counted", CLICKS.format(more=""), QUERY.replace("clicks", "other"))
    project.write("gold", "clicks", CLICKS.format(more=", pii: true"), QUERY)
    with catalog_here(tmp_path) as server, dg.DagsterInstance.ephemeral() as instance:
        catalog = UnityCatalog(host=server.url, token=server.token)
        with closing(DuckDB(catalog=catalog)) as duckdb:
            survey = SubjectSurvey(catalog, duckdb, project.tables, LandingZone(url=str(tmp_path)))

            def refused() -> RatifyError:
                with pytest.raises(RatifyError) as raised:
                    SubjectErasure(Subject("person", "Ann"), survey, Spark(catalog=catalog), instance, "a request").run()
                return raised.value

            yield refused


@contextmanager
def session_cluster(state: str, name: str) -> Iterator[str]:
    """Answer as Flink's REST API does of a job, as `test_flink_session.py` sees it of a real one."""

    class Overview(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            jobs = [{"jid": "1", "name": name, "state": state, "start-time": 1}] if self.path == "/jobs/overview" else []
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"jobs": jobs}).encode())

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 its name there

    with ThreadingHTTPServer(("127.0.0.1", 0), Overview) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_job_that_runs_is_stopped_first(
    project: Project, erasure: Callable[[], RatifyError], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {job.declaration.name: job for job in project.tables.flink_tables}
    assert isinstance(erasure(), NotConfigured)
    # A table without personal columns is no reason to stop its job.
    with stream_checkpoints.exclusive(jobs["counted"].declaration):
        assert isinstance(erasure(), NotConfigured)
    with stream_checkpoints.exclusive(jobs["clicks"].declaration):
        refused = erasure()
    assert isinstance(refused, TableInUse)
    assert "Nothing was changed. The stream into gold_" in str(refused)
    # On a session cluster a job goes on if the process is killed that has started it.
    name = jobs["clicks"].declaration.full_name("ratify")
    for state, error, said in (
        ("RUNNING", TableInUse, "though no process of this home follows it"),
        ("RESTARTING", TableInUse, "though no process of this home follows it"),
        ("CANCELED", NotConfigured, "No column of the project identifies a person"),
    ):
        with session_cluster(state, name) as url:
            monkeypatch.setenv("FLINK_REST", url)
            refused = erasure()
        assert isinstance(refused, error), state
        assert said in str(refused)
    # Nobody answers there any more.
    assert "does not answer" in str(refused := erasure())
    assert isinstance(refused, TableInUse)
