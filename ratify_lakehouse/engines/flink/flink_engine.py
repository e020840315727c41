"""Apache Flink: jobs of its SQL client, each on a cluster that lives for as long as the job.

The client and its clusters are one JVM, in a child process. This project's sink finds the catalog's credentials in the
environment of the JVM. Delta's own connector takes a token in the SQL. Both go there through pipes. Secrets are in
no file, in no list of processes, and in nothing that is logged or raised.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.flink.flink_jars import ADVICE, check_complete, listed
from ratify_lakehouse.engines.flink.flink_process import FlinkCommand, FlinkProcess, running
from ratify_lakehouse.engines.flink.flink_run import FlinkRun
from ratify_lakehouse.engines.flink.flink_sql import FlinkTarget, Insert, delta_connector, job_text, own_sink
from ratify_lakehouse.engines.flink.flink_stream import milliseconds
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable
from ratify_lakehouse.settings import Settings

logger = logging.getLogger(__name__)

_TAIL = 2000
_COMMAND = Settings.model_fields["flink_command"].default


def is_available() -> bool:
    """Return whether Flink is installed, or another program is named that runs it."""
    return find_spec("pyflink") is not None or Settings().flink_command != _COMMAND


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
            "execution.checkpointing.interval": milliseconds(self.checkpoint_seconds),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(self.restarts),
            "restart-strategy.fixed-delay.delay": milliseconds(self.restart_seconds),
        }
        run = self.execute(job_text(target, inserts, settings), secrets, jars, [insert.table for insert in inserts])
        if len(run.jobs) != len(inserts):
            raise FlinkFailed(f"Flink reported the end of {len(run.jobs)} of {len(inserts)} jobs.")
        return run

    def execute(
        self,
        sql: str,
        secrets: Sequence[str] = (),
        connector: Sequence[Path] | None = None,
        tables: Sequence[TableDeclaration] = (),
    ) -> FlinkRun:
        """Run statements until all are done, or one fails.

        Args:
            sql: Statements of Flink's SQL client, each with a semicolon.
            secrets: Texts in it that must not appear in logs and errors; nor do the catalog's credentials.
            connector: The jars of another connector than this project's sink.
            tables: Those that it writes.

        Raises:
            FlinkUnavailable: Flink is not installed, or no suitable Java was found.
            FlinkFailed: a statement or a job failed, or all took too long.
        """
        others = [] if connector is None else ["--connector", *map(str, connector)]
        command = FlinkCommand([*others, *self.store_arguments(tables)], sql, self.credentials(), secrets)
        with running(command) as process:
            self._wait(process)
            run = process.finished()
        for job in run.jobs:
            shown = (job.name, job.id, job.status, job.checkpoints, job.restarts)
            logger.info("Flink job %s (%s): %s, %d checkpoints, %d restarts", *shown)
        return run

    def _wait(self, process: FlinkProcess) -> None:
        if not process.wait(self.timeout_seconds):
            raise FlinkFailed(f"Flink's jobs took longer than {self.timeout_seconds:.0f} s and were stopped.")

    def _downloaded(self, coordinates: str) -> tuple[Path, ...]:
        with running(FlinkCommand(["connector", coordinates])) as process:
            self._wait(process)
            if process.code:
                raise FlinkUnavailable(
                    f"Delta's connector for Flink could not be downloaded: {process.log.strip()[-_TAIL:]} {ADVICE}"
                )
            return tuple(map(Path, process.output.splitlines()))

    def stream_target(self, database: str) -> FlinkTarget:
        """Return the catalog for a streaming job whose table is in a schema of it."""
        to, settings = self.catalog.connection, Settings()
        target = own_sink(to.name, database, to.host)
        if not (settings.flink_rest and settings.flink_credentials_file):
            return target

        def options(uid: str) -> Mapping[str, str]:
            return {**target.sink_options(uid), "credentials-file": settings.flink_credentials_file}

        return replace(target, sink_options=options)

    def store_arguments(self, tables: Sequence[TableDeclaration]) -> list[str]:
        """Return the command's arguments for the stores that tables are on.

        Raises:
            TableMissing, CatalogUnavailable, CatalogDenied.
        """
        names = (table.full_name(self.catalog.connection.name) for table in tables)
        urls = [self.catalog.table(name).storage_location or "" for name in names]
        return ["--s3"] if any(url.startswith(("s3:", "s3a:")) for url in urls) else []

    def credentials(self) -> dict[str, str | None]:
        """Return the catalog's credentials as this project's sink takes them, which renews OAuth tokens itself."""
        to = self.catalog.connection
        oauth = to.client_id and to.client_secret
        return {
            "UNITY_TOKEN": to.token.get_secret_value() if to.token and not oauth else None,
            "UNITY_CLIENT_ID": to.client_id if oauth else None,
            "UNITY_CLIENT_SECRET": to.client_secret.get_secret_value() if to.client_secret and oauth else None,
        }
