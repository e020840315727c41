"""`ratify dev`: the embedded stack and the Dagster UI, daemon and code server, all ended together."""

import os
import sys
import time
from pathlib import Path

from embedded.child_process import LOCALHOST, Child, answers, free_port
from orchestration.cli import cli_session
from resources.settings import Settings

_WORKSPACE = Path(__file__).parents[2] / "workspace.yaml"


def run_dev(port: int, *, kafka: bool = False) -> int:
    """Run until Ctrl-C, with `kafka` beside a broker, and return Dagster's exit code.

    Raises:
        PortTaken: another process listens on the port.
    """
    settings = Settings()
    free_port(port, "Dagster UI")
    with cli_session.stack_for_this_process(kafka=kafka):
        environment = {"RATIFY_HOME": str(settings.home), "DAGSTER_HOME": str(cli_session.dagster_home(settings))}
        os.environ.update(environment)
        where = ["-w", str(_WORKSPACE)] if _WORKSPACE.exists() else ["-m", "orchestration.definitions"]
        log = settings.home / "logs" / "dagster.log"
        dagster = [sys.executable, "-m", "dagster", "dev", *where, "-h", LOCALHOST, "-p", str(port)]
        child = Child("Dagster UI", [sys.executable, "-m", "embedded.parent_watch", *dagster], log)
        try:
            child.wait_until(lambda: answers(port) or None, timeout=120)
            cli_session.out.print(
                f"Dagster UI on http://{LOCALHOST}:{port} (log: {log}). Ctrl-C stops everything.", highlight=False
            )
            while child.exit_code is None:
                time.sleep(0.5)
        except KeyboardInterrupt:
            cli_session.progress("stopping")
            return 0
        finally:
            child.stop(grace=40)
    return child.exit_code or 0
