"""`ratify prove`: its flags, what counts as passed, and the whole proof, killed at each of its steps."""

import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assets.cross_engine import proof_ledger, proof_lifecycle, verify_step
from assets.cross_engine.proof_steps import Step
from assets.cross_engine.proof_tables import TABLES
from assets.cross_engine.spark_steps import name_of
from orchestration.cli.proof_run import StepOutcome, passed, steps_of
from resources.errors import UnsafeTable
from tests.orchestration.ratify_command import RATIFY, environment, ratify
from tests.resources.lakehouse import Lakehouse, engines, lake

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


def fates(printed: str) -> dict[str, str]:
    """The result of each step, from the table that is printed."""
    steps, _, _ = printed.partition("Commits by engine")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in steps.splitlines()]
    return {cells[0].replace(" ", "_"): cells[1] for cells in lines if len(cells) == 4 and cells[0]}


def prove(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the proof, for which two busy cores may take their time."""
    return ratify(home, "prove", *arguments, timeout=1800)


def as_it_should(proof: subprocess.CompletedProcess[str]) -> None:
    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = fates(proof.stdout)
    assert list(found) == list(Step), proof.stdout
    assert set(found.values()) == {"passed"}


@pytest.mark.stack
def test_spark_and_duckdb_read_what_the_other_wrote(lake: Lakehouse, home: Path) -> None:
    # With Flink it is in the test below that runs it twice, and Flink's step is in tests/assets/test_flink_step.py.
    proof = prove(home, "-s", "-d", "--no-cleanup")
    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = fates(proof.stdout)
    assert found == dict.fromkeys((step for step in Step if step not in (Step.CLEANUP, Step.FLINK)), "passed")
    assert "22 queries, in Spark and in DuckDB: the known answers." in proof.stdout
    with lake.duckdb.session() as session:
        run = proof_ledger.current(session)
        restored = {entry.table: entry.version for entry in run.entries if entry.operation == proof_ledger.RESTORE}
        assert restored == {"orders": lake.version(TABLES["orders"])}
        # A proof that cannot fail proves nothing: a row that is changed behind its back is seen.
        lake.run(f"UPDATE {name_of(lake.spark, TABLES['nation'])} SET n_comment = 'other' WHERE n_nationkey = 7")
        history = {"nation": lake.spark.history(name_of(lake.spark, TABLES["nation"]))}
        seen = verify_step.engines_agree(lake.spark, session, run, history)
        assert not seen.passed
        for engine in ("Spark", "DuckDB"):
            assert f"nation as DuckDB LOAD left it, read by {engine}" in seen.description
        as_restored = [replace(entry, operation=proof_ledger.RESTORE) for entry in run.entries]
        assert not verify_step.rolled_back(lake.spark, session, as_restored).passed
    assert set(proof_lifecycle.remove(lake.spark)) >= set(TABLES)
    assert proof_lifecycle.remove(lake.spark) == []
    assert "tpch" not in {schema.name for schema in lake.catalog.client.schemas.list("ratify")}


@pytest.mark.stack
def test_tables_of_others_are_not_dropped(lake: Lakehouse) -> None:
    lake.run("CREATE SCHEMA IF NOT EXISTS ratify.tpch")
    lake.run("CREATE TABLE ratify.tpch.theirs (id INT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')")
    with pytest.raises(UnsafeTable, match="theirs was not created by Ratify"):
        proof_lifecycle.remove(lake.spark)
    assert lake.run("SELECT count(*) AS n FROM ratify.tpch.theirs") == [{"n": 0}]
    lake.run("DROP TABLE ratify.tpch.theirs")
    proof_lifecycle.remove(lake.spark)


@pytest.mark.stack
@pytest.mark.long
def test_twice_in_a_row_on_a_fresh_stack(new_home: Path) -> None:
    for _ in range(2):
        proof = prove(new_home, "-a", "--scale-factor", "0.1")
        as_it_should(proof)
        assert "22 queries, in Spark and in DuckDB: the known answers." in proof.stdout


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
