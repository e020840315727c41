"""The quick proof but for what Flink writes, on the stack of the run, whose Spark is warm; and what fails it."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from ratify_lakehouse.embedded.stack_state import StackState
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.proof import proof_ledger, proof_lifecycle, verify_step
from ratify_lakehouse.proof.proof_steps import Step
from ratify_lakehouse.proof.proof_tables import ORDERS_FLINK, TABLES
from ratify_lakehouse.proof.spark_steps import name_of
from tests.cli.proof_command import RunningProof, fates
from tests.engines.lakehouse import Lakehouse, engines, lake

pytestmark = [pytest.mark.server, pytest.mark.stack, pytest.mark.locks("schema of the proof")]

__all__ = ["engines", "lake"]


STEPS = [step for step in Step if step is not Step.CLEANUP]


@pytest.fixture(scope="module")
def running(home: Path, stack: StackState, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningProof]:
    """The proof, from its start, on a stack that runs."""
    assert stack.spark
    # In full and with Flink it is in tests/cli/test_prove.py, twice, and Flink's step is in tests/proof/test_flink_step.py.
    arguments = ("-a", "--quick", "--no-cleanup")
    with RunningProof(home, tmp_path_factory.mktemp("proof"), *arguments, FLINK_COMMAND="no-such-command") as proof:
        yield proof


@pytest.mark.parametrize("step", STEPS)
def test_a_step_ends_and_the_next_one_begins(running: RunningProof, step: Step) -> None:
    """After Flink's, too, which is not here."""
    following = STEPS[STEPS.index(step) + 1 :]
    running.await_(f"{following[0].value} …" if following else None)


def test_spark_and_duckdb_read_what_the_other_wrote(running: RunningProof, lake: Lakehouse) -> None:
    proof = running.ended()
    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = fates(proof.stdout)
    assert found == {step: "unavailable" if step is Step.FLINK else "passed" for step in STEPS}
    assert "ratify-lakehouse[embedded,flink]" in proof.stderr
    assert (lake.version(ORDERS_FLINK), lake.rows(ORDERS_FLINK)) == (0, [])
    assert "22 queries in DuckDB, 8 in Spark: the known answers." in proof.stdout


def test_a_proof_fails_where_a_row_is_changed_behind_its_back(running: RunningProof, lake: Lakehouse) -> None:
    assert running.ended().returncode == 0
    with lake.duckdb.session() as session:
        run = proof_ledger.current(session)
        restored = {entry.table: entry.version for entry in run.entries if entry.operation == proof_ledger.RESTORE}
        assert restored == {"orders": lake.version(TABLES["orders"])}
        lake.run(f"UPDATE {name_of(lake.spark, TABLES['nation'])} SET n_comment = 'other' WHERE n_nationkey = 7")
        history = {"nation": lake.spark.history(name_of(lake.spark, TABLES["nation"]))}
        seen = verify_step.engines_agree(lake.spark, session, run, history)
        assert not seen.passed
        for engine in ("Spark", "DuckDB"):
            assert f"nation as DuckDB LOAD left it, read by {engine}" in seen.description
        as_restored = [replace(entry, operation=proof_ledger.RESTORE) for entry in run.entries]
        assert not verify_step.rolled_back(lake.spark, session, as_restored).passed


def test_its_tables_are_removed(running: RunningProof, lake: Lakehouse) -> None:
    assert running.ended().returncode == 0
    assert set(proof_lifecycle.remove(lake.spark)) >= set(TABLES)
    assert proof_lifecycle.remove(lake.spark) == []
    assert "tpch" not in {schema.name for schema in lake.catalog.client.schemas.list("ratify")}


def test_tables_of_others_are_not_dropped(lake: Lakehouse) -> None:
    lake.run("CREATE SCHEMA IF NOT EXISTS ratify.tpch")
    lake.run("CREATE TABLE ratify.tpch.theirs (id INT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')")
    with pytest.raises(UnsafeTable, match="theirs was not created by Ratify"):
        proof_lifecycle.remove(lake.spark)
    assert lake.run("SELECT count(*) AS n FROM ratify.tpch.theirs") == [{"n": 0}]
    lake.run("DROP TABLE ratify.tpch.theirs")
    proof_lifecycle.remove(lake.spark)
