"""Strategy `incremental`: a pass dies by kill -9 at each step, and the next one makes the table equal to its query."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components.incremental_tables import without_pictures
from tests.components.one_input import OneInput
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("no_previews")]

_COMMITTED = "ratify_lakehouse.engines.spark.spark_engine:Spark.merge_changes:after"
_OTHER_STEPS = (
    "ratify_lakehouse.components.strategies.query_inputs:QueryInputs.create_views:before",
    "ratify_lakehouse.components.strategies.query_inputs:QueryInputs.create_views:after",
    "ratify_lakehouse.components.strategies.changed_rows:ChangedRows.to_compute:after",
    "ratify_lakehouse.engines.spark.spark_engine:Spark.ensure_table:after",
    "ratify_lakehouse.engines.spark.spark_engine:Spark.merge_changes:before",
    "ratify_lakehouse.engines.spark.spark_engine:Spark.write_result:before",
)


def die(lake: Lakehouse, home: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    without_pictures(monkeypatch)
    shop = OneInput(lake, feed=True)
    table = shop.table("SELECT k, sum(v) AS total")
    shop.begun(table)
    shop.quick("UPDATE a SET v = v + 1 WHERE k = '{'")
    command = [sys.executable, "-m", "tests.components.killed_pass", shop.schema, "t", table.query.text, "k", step]
    environment = os.environ | {"RATIFY_HOME": str(home)}
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    committed = "merge_changes:after" in step or "write_result" in step
    assert shop.version() == 1 + committed
    assert shop.made(table) == ("", not committed)


def test_the_next_pass_goes_on(lake: Lakehouse, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(lake, home, monkeypatch, _COMMITTED)


@pytest.mark.long
@pytest.mark.parametrize("step", _OTHER_STEPS)
def test_the_next_pass_goes_on_after_each_step(
    lake: Lakehouse, home: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    die(lake, home, monkeypatch, step)
