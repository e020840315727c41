"""Apache Flink: jobs of its SQL client, each on a cluster that lives for as long as the job.

The client and its clusters are one JVM, in a child process. This project's sink finds the catalog's credentials in the
environment of the JVM. Delta's own connector takes a token in the SQL. Both go there through pipes. Secrets are in
no file, in no list of processes, and in nothing that is logged or raised.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
from pydantic import Field

from resources.catalog.unity_catalog import UnityCatalog
from resources.errors import FlinkFailed, FlinkUnavailable
from resources.flink.flink_jars import ADVICE, check_complete, listed
from resources.flink.flink_run import FlinkRun, read_run
from resources.flink.flink_sql import Insert, delta_connector, job_text, own_sink
from resources.redaction import redacted
from resources.settings import Settings

logger = logging.getLogger(__name__)

# How long embedded.parent_watch waits after SIGINT and SIGTERM before it kills, and a little more.
_GRACE_S = 20
_TAIL = 2000


class Flink(dg.ConfigurableResource[Any]):
    """Flink with a sink whose every checkpoint that has rows is a commit that the catalog ratifies."""

    catalog: dg.ResourceDependency[UnityCatalog]
    checkpoint_seconds: float = Field(default=2, gt=0, description="Time between two checkpoints, which are commits")
    restarts: int = Field(default=20, ge=0, description="How often a failed job restarts at its last checkpoint")
    restart_seconds: float = Field(default=1, ge=0, description="Pause before that")
    timeout_seconds: float = Field(default=900, gt=0, description="How long all jobs of a run may take together")

    def connector(self) -> tuple[Path, ...] | None:
        """Return the jars of Delta's own connector, a complete set, where one is configured; None for this project's sink.

        Raises:
            FlinkUnavailable: it cannot be downloaded, or is incomplete.
        """
        settings = Settings()
        if settings.flink_delta_jars:
            found, where = listed(settings.flink_delta_jars), f"FLINK_DELTA_JARS ({settings.flink_delta_jars})"
        elif settings.flink_delta_package:
            found, where = self._downloaded(settings.flink_delta_package), f"{settings.flink_delta_package}"
        else:
            return None
        check_complete(found, where)
        return found

    def insert(self, inserts: Sequence[Insert]) -> FlinkRun:
        """Append generated rows to existing tables, by one job a table, one after the other.

        Raises:
            FlinkUnavailable: Flink is missing, or Delta's own connector is incomplete; nothing was started.
            FlinkFailed: a job failed.
            CatalogUnavailable, CatalogDenied: the catalog gave no token.
        """
        jars, to, database = self.connector(), self.catalog.connection, inserts[0].table.layer
        if jars is None:
            target, secrets = own_sink(to.name, database, to.host), list[str]()
        else:
            token = self.catalog.bearer_token()
            target, secrets = delta_connector(to.name, database, to.host, token), [token]
        # A job that fails resumes at its last checkpoint, with exact rows; Delta's own sink fails on conflicts.
        settings = {
            "execution.checkpointing.interval": _milliseconds(self.checkpoint_seconds),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(self.restarts),
            "restart-strategy.fixed-delay.delay": _milliseconds(self.restart_seconds),
        }
        run = self.execute(job_text(target, inserts, settings), secrets, jars)
        if len(run.jobs) != len(inserts):
            raise FlinkFailed(f"Flink reported the end of {len(run.jobs)} of {len(inserts)} jobs.")
        return run

    def execute(self, sql: str, secrets: Sequence[str] = (), connector: Sequence[Path] | None = None) -> FlinkRun:
        """Run statements until all are done, or one fails.

        Args:
            sql: Statements of Flink's SQL client, each with a semicolon.
            secrets: Texts in it that must not appear in logs and errors; nor do the catalog's credentials.
            connector: The jars of another connector than this project's sink.

        Raises:
            FlinkUnavailable: Flink is not installed, or no suitable Java was found.
            FlinkFailed: a statement or a job failed, or all took too long.
        """
        with tempfile.TemporaryDirectory(prefix="ratify-flink-") as folder:
            pipe = Path(folder) / "job.sql"
            os.mkfifo(pipe, 0o600)
            others = [] if connector is None else ["--connector", *map(str, connector)]
            credentials = self._credentials()
            secrets = [*secrets, *(credentials[name] or "" for name in ("UNITY_TOKEN", "UNITY_CLIENT_SECRET"))]
            output, log, code = self._run(["run", str(pipe), *others], pipe, sql, credentials)
            run = read_run(Path(folder) / "archive", output, secrets)
        output, log = redacted(output, secrets), redacted(log, secrets)
        if code == os.EX_UNAVAILABLE:
            raise FlinkUnavailable(log.strip())
        for job in run.jobs:
            logger.info("Flink job %s (%s): %s, %d checkpoints, %d restarts", *vars(job).values())
        if failed := next((job for job in run.jobs if job.status != "FINISHED"), None):
            raise FlinkFailed(
                f"Flink's job into {failed.name} ended as {failed.status} after {failed.restarts} restarts: "
                f"{failed.error or run.error}"
            )
        if run.error:
            raise FlinkFailed(f"Flink could not run a statement: {run.error}")
        if code:
            raise FlinkFailed(f"Flink's SQL client ended with {code}: {(log or output).strip()[-_TAIL:]}")
        return run

    def _downloaded(self, coordinates: str) -> tuple[Path, ...]:
        output, log, code = self._run(["connector", coordinates])
        if code:
            raise FlinkUnavailable(f"Delta's connector for Flink could not be downloaded: {log.strip()[-_TAIL:]} {ADVICE}")
        return tuple(map(Path, output.splitlines()))

    def _credentials(self) -> dict[str, str | None]:
        """Return the catalog's credentials as this project's sink takes them, which renews OAuth tokens itself."""
        to = self.catalog.connection
        oauth = to.client_id and to.client_secret
        return {
            "UNITY_TOKEN": to.token.get_secret_value() if to.token and not oauth else None,
            "UNITY_CLIENT_ID": to.client_id if oauth else None,
            "UNITY_CLIENT_SECRET": to.client_secret.get_secret_value() if to.client_secret and oauth else None,
        }

    def _run(
        self,
        arguments: Sequence[str],
        pipe: Path | None = None,
        sql: str = "",
        credentials: Mapping[str, str | None] = MappingProxyType({}),
    ) -> tuple[str, str, int]:
        """Run the command; return what it wrote to its output and to its log, and its exit code."""
        settings = Settings()
        java = ["--java-home", str(settings.ratify_java_home)] if settings.ratify_java_home else []
        command = [
            _flink_command(settings.flink_command),
            "--jars-dir",
            str(settings.home / "jars"),
            *java,
            *arguments,
        ]
        # In its own session, so that Ctrl-C in a terminal reaches this process only, which then ends it. Should this process
        # be killed, it ends with its standard input.
        with (
            ThreadPoolExecutor(3) as threads,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process,
        ):
            if process.stdin:
                # The first line of its input, which then stays open. No file and no list of processes has it.
                with suppress(BrokenPipeError):
                    process.stdin.write(f"{json.dumps(dict(credentials))}\n")
                    process.stdin.flush()
            fed = threads.submit(_feed, pipe, sql) if pipe else None
            output, log = (threads.submit(stream.read) for stream in (process.stdout, process.stderr) if stream)
            try:
                code = process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired as error:
                raise FlinkFailed(f"Flink's jobs took longer than {self.timeout_seconds:.0f} s and were stopped.") from error
            finally:
                _stop(process)
                if pipe and fed:
                    _release(pipe, fed)
            return output.result(), log.result(), code


def _flink_command(name: str) -> str:
    # Also finds a command that pip installed beside this Python when the environment is not activated.
    found = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    if not found:
        raise FlinkUnavailable(
            f"The command {name} was not found: pip install 'ratify-lakehouse[embedded,flink]' brings ratify-flink, or name "
            "another one in FLINK_COMMAND."
        )
    return found


def _feed(pipe: Path, sql: str) -> None:
    # A client that ends before it has read everything reports the reason itself.
    with suppress(BrokenPipeError):
        pipe.write_text(sql)


def _release(pipe: Path, fed: "Future[None]") -> None:
    """End the wait for a reader that will not come any more."""
    while not fed.done():
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        wait((fed,), timeout=0.01)


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
