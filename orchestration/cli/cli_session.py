"""What the commands share: the stack to talk to, the Dagster instance, the resources, and how to print."""

import json
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import psutil
import typer
from rich.console import Console
from rich.table import Table

from embedded.embedded_stack import running
from embedded.private_files import write_private
from embedded.stack_state import StackConfig
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.settings import Settings
from resources.spark.spark_engine import Spark

# Tables that go to a file or a pipe, which has no width of its own, are not folded to 80 columns.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 132)
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration: the command itself says what happens."""

_PROCESS_TAG = "ratify/process"
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Engines:
    """The resources, outside of a Dagster run."""

    catalog: UnityCatalog
    spark: Spark
    duckdb: DuckDB

    def full_name(self, table: str) -> str:
        """Return the three-part name of a table that was given as schema.table or catalog.schema.table."""
        return table if table.count(".") == 2 else f"{self.catalog.connection.name}.{table}"

    def close(self) -> None:
        """Close what was opened."""
        self.spark.close()
        self.duckdb.close()


@contextmanager
def engines() -> Generator[Engines]:
    """The resources as the settings name them, closed at the end."""
    catalog = UnityCatalog()
    opened = Engines(catalog, Spark(catalog=catalog), DuckDB(catalog=catalog))
    try:
        yield opened
    finally:
        opened.close()


def progress(message: str) -> None:
    """Show what a long start is at; on stderr, so that stdout stays the answer."""
    err.print(f"[dim]{message}[/dim]", highlight=False)


def stack_config(catalog_port: int = 0, spark_port: int = 0, *, kafka: bool = False, kafka_port: int = 0) -> StackConfig:
    """Return the stack that the settings ask for: no catalog of its own where UNITY_HOST names one."""
    settings = Settings()
    # Spark reads from Kafka, whether the broker is ours or the one that KAFKA_BOOTSTRAP names.
    jar_sets = ("spark", "kafka") if kafka or settings.kafka_bootstrap else ("spark",)
    config = StackConfig(
        home=settings.home,
        catalog=settings.unity_catalog,
        catalog_port=catalog_port,
        spark_port=spark_port,
        java_home=settings.ratify_java_home,
        unity_spark_package=settings.unity_spark_package,
        jar_sets=jar_sets,
        spark=settings.spark_remote is None,
        kafka=kafka,
        kafka_port=kafka_port,
        storage_root=settings.ratify_storage_root,
        s3_role_arn=settings.ratify_s3_role_arn,
        s3_endpoint=settings.ratify_s3_endpoint,
        s3_region=settings.ratify_s3_region,
        s3_credential_seconds=settings.ratify_s3_credential_seconds,
    )
    if kafka and settings.kafka_password:
        password_file = settings.home / "secrets" / "kafka.password"
        write_private(password_file, settings.kafka_password.get_secret_value())
        config = config.model_copy(update={"kafka_password_file": password_file})
    if not settings.unity_host:
        return config
    token_file = settings.home / "secrets" / "unity.token"
    write_private(token_file, UnityCatalog().bearer_token())
    there: dict[str, object] = {"unity_host": settings.unity_host, "unity_token_file": token_file}
    as_whom = settings.catalog_connection()
    if as_whom.client_secret:
        # The token lasts an hour; Spark gets one after the other itself.
        secret_file = token_file.with_name("unity.secret")
        write_private(secret_file, as_whom.client_secret.get_secret_value())
        there |= {"unity_client_id": as_whom.client_id, "unity_secret_file": secret_file}
    return config.model_copy(update=there)


@contextmanager
def stack_for_this_process(*, kafka: bool = False) -> Generator[None]:
    """What the settings do not name, started for the length of the block, or found running; with `kafka` a broker too."""
    settings = Settings()
    kafka = kafka and not settings.kafka_bootstrap
    if settings.unity_host and settings.spark_remote and not kafka:
        progress(f"using the catalog at {settings.unity_host} and Spark at {settings.spark_remote}")
        yield
        return
    with running(stack_config(kafka=kafka), progress):
        yield


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance, with the project's dagster.yaml in it."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    # Beside the packages in a checkout, inside of this one in a wheel.
    found = next(path for path in (_PACKAGE.parent / "dagster.yaml", _PACKAGE / "dagster.yaml") if path.exists())
    shutil.copyfile(found, home / "dagster.yaml")
    return home


@contextmanager
def dagster_instance() -> Generator[dg.DagsterInstance]:
    """The Dagster instance of RATIFY_HOME, the same that `ratify dev` shows."""
    with dg.DagsterInstance.from_config(str(dagster_home(Settings()))) as instance:
        yield instance


def process_tag() -> dict[str, str]:
    """Return the tag of a run that this process executes, by which `close_dead_runs` knows it."""
    return {_PROCESS_TAG: str(os.getpid())}


def close_dead_runs(instance: dg.DagsterInstance) -> None:
    """Close the runs of a command that was killed: while they seem to run, their assets are not asked for again."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        pid = run.tags.get(_PROCESS_TAG)
        if pid and not psutil.pid_exists(int(pid)):
            instance.report_run_failed(run, "The process of this run is gone.")


def show(title: str, rows: list[dict[str, Any]], *, as_json: bool = False) -> None:
    """Print rows as a table, or as JSON."""
    if as_json:
        out.print_json(json.dumps(rows, default=str))
        return
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else str(v) for v in row.values()))
    out.print(table if rows else f"[bold]{title}[/bold]\n(no rows)")
