"""`ratify dev`: the embedded stack with the Dagster UI, daemon and code server, all stopped together."""

import os
import sys
import time
from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import out, progress


def dev(
    port: Annotated[int, typer.Option(help="Port of the Dagster UI.")] = 3000,
    kafka: Annotated[bool, typer.Option("--kafka", help="Start a Kafka broker too.")] = False,
) -> None:
    """Run the embedded stack and the Dagster UI on 127.0.0.1, until Ctrl-C."""
    raise typer.Exit(_run_dev(port, kafka=kafka))


def _run_dev(port: int, *, kafka: bool) -> int:
    """Run until Ctrl-C and return Dagster's exit code.

    Raises:
        PortTaken: another process listens on the port.
    """
    from ratify_lakehouse.cli.dagster_session import dagster_home, workspace_file
    from ratify_lakehouse.cli.stack_session import stack_for_this_process
    from ratify_lakehouse.definitions.project_folders import project_root
    from ratify_lakehouse.embedded.child_process import LOCALHOST, Child, answers, free_port
    from ratify_lakehouse.settings import Settings

    settings = Settings()
    free_port(port, "Dagster UI")
    with stack_for_this_process(kafka=kafka):
        os.environ.update({"RATIFY_HOME": str(settings.home), "DAGSTER_HOME": str(dagster_home(settings))})
        log = settings.home / "logs" / "dagster.log"
        workspace = str(workspace_file())
        dagster = [sys.executable, "-m", "dagster", "dev", "-w", workspace, "-h", LOCALHOST, "-p", str(port)]
        child = Child(
            "Dagster UI", [sys.executable, "-m", "ratify_lakehouse.embedded.parent_watch", *dagster], log, cwd=project_root()
        )
        try:
            child.wait_until(lambda: answers(port) or None, timeout=120)
            out.print(f"Dagster UI on http://{LOCALHOST}:{port} (log: {log}). Ctrl-C stops everything.", highlight=False)
            while child.exit_code is None:
                child.rotate_log()
                time.sleep(0.5)
        except KeyboardInterrupt:
            progress("stopping")
            return 0
        finally:
            child.stop(grace=40)
    return child.exit_code or 0
