"""`ratify prove`: its flags, what counts as passed, and the whole proof with Flink, killed at each of its steps.

tests/smoke/test_proof.py has it without Flink.
"""

import random
import subprocess
import time
from pathlib import Path

import pytest

from ratify_lakehouse.cli.proof_run import StepOutcome, passed, steps_of
from ratify_lakehouse.proof.proof_steps import Step
from tests.cli.proof_command import fates, prove
from tests.cli.ratify_command import RATIFY, environment
from tests.engines.lakehouse import Lakehouse, engines, lake

pytestmark = pytest.mark.locks("schema of the proof")

__all__ = ["engines", "lake"]


@pytest.mark.server
def test_an_engine_has_to_be_named(tmp_path: Path) -> None:
    asked = prove(tmp_path, "--no-setup")
    assert asked.returncode == 2
    for flag in ("-a", "-s", "-f", "-d"):
        assert flag in asked.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("named", "setup", "cleanup", "expected"),
    [
        (["spark", "flink", "duckdb"], True, True, list(Step)),
        (["duckdb"], True, True, ["setup", "duckdb_read", "duckdb_insert", "verify", "cleanup"]),
        (["flink"], False, False, ["flink", "verify"]),
        (["spark"], False, True, ["spark_read", "spark_write", "streaming", "verify", "cleanup"]),
    ],
)
def test_flags_name_steps(named: list[str], setup: bool, cleanup: bool, expected: list[str]) -> None:
    assert steps_of(named, setup=setup, cleanup=cleanup) == expected


@pytest.mark.parametrize(
    ("named", "outcomes", "expected"),
    [
        (["duckdb"], ["passed"], True),
        (["spark", "flink", "duckdb"], ["passed", "unavailable"], True),
        (["flink"], ["passed", "unavailable"], False),
        (["spark", "flink", "duckdb"], ["passed", "unavailable", "failed"], False),
        (["spark", "flink", "duckdb"], ["passed", "not run"], False),
    ],
)
def test_what_counts_as_passed(named: list[str], outcomes: list[str], expected: bool) -> None:
    assert passed([StepOutcome(outcome) for outcome in outcomes], named) is expected


def as_it_should(proof: subprocess.CompletedProcess[str]) -> None:
    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = fates(proof.stdout)
    assert list(found) == list(Step), proof.stdout
    assert set(found.values()) == {"passed"}


@pytest.mark.stack
@pytest.mark.long
def test_twice_in_a_row_on_a_fresh_stack(new_home: Path) -> None:
    for _ in range(2):
        proof = prove(new_home, "-a", "--scale-factor", "0.1")
        as_it_should(proof)
        assert "22 queries in DuckDB, 22 in Spark: the known answers." in proof.stdout


@pytest.mark.stack
@pytest.mark.long
def test_what_is_killed_is_made_good_by_the_next(lake: Lakehouse, home: Path) -> None:
    """kill -9 in the middle of each step in turn, on a stack that goes on with whatever was begun there: each run gets past
    the step at which the one before it died, and the last one ends as it should."""
    for step in [step.value for step in Step if step is not Step.FLINK]:
        proof = subprocess.Popen(
            [RATIFY, "prove", "-a"], env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert proof.stderr is not None
        lines = list[str]()
        for line in proof.stderr:
            lines.append(line)
            if line.startswith(f"{step} …"):
                break
        else:
            pytest.fail(f"{step} was not reached: {''.join(lines)}")
        time.sleep(random.uniform(0.05, 0.5 if step in {"duckdb_read", "duckdb_insert", "cleanup"} else 5))  # noqa: S311
        proof.kill()
        proof.wait(10)
        proof.stderr.close()
    as_it_should(prove(home, "-a"))
