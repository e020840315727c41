"""The asset that Flink writes: what it says where the connector is not there, where its job fails, and of what it finds."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_run import FlinkJob, FlinkRun
from ratify_lakehouse.engines.flink.flink_sql import Insert
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import FlinkUnavailable
from ratify_lakehouse.proof.flink_step import CHECK, OWN, SHARED, Found, orders_flink, unavailable, written
from ratify_lakehouse.proof.proof_rows import BY_FLINK
from ratify_lakehouse.proof.proof_tables import ORDERS, ORDERS_FLINK
from ratify_lakehouse.proof.row_digest import Digest
from ratify_lakehouse.proof.spark_steps import name_of
from ratify_lakehouse.settings import TPCH
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.locks("schema of the proof")

JOBS = FlinkRun(
    (
        FlinkJob("tpch.orders_flink", "1" * 32, "FINISHED", checkpoints=6, restarts=0),
        FlinkJob("tpch.orders", "2" * 32, "FINISHED", checkpoints=2, restarts=1, error="a conflict"),
    )
)


@pytest.fixture
def lake(lake: Lakehouse) -> Generator[Lakehouse]:
    """With the proof's tables, and without their schema afterwards: the proof drops it, as another principal."""
    lake.create(ORDERS)
    lake.create(ORDERS_FLINK)
    yield lake
    lake.drop(ORDERS, ORDERS_FLINK)
    lake.catalog.client.schemas.delete(f"ratify.{TPCH}")


@dg.asset(deps=[asset_key(ORDERS_FLINK)])
def afterwards() -> None:
    """What comes after Flink in a run."""


class WrittenBySpark(Flink):
    """Has the rows written, all of them, but not by Flink."""

    def insert(self, inserts: Sequence[Insert]) -> FlinkRun:
        spark = Spark(catalog=self.catalog)
        for insert in inserts:
            rows = f"(SELECT id AS seq FROM range(1, {insert.rows + 1}))"
            spark.sql(f"INSERT INTO {name_of(spark, insert.table)} SELECT {', '.join(insert.columns)} FROM {rows}")
        return JOBS


def materialized(lake: Lakehouse, flink: Flink | None = None) -> tuple[dg.ExecuteInProcessResult, dg.AssetCheckEvaluation]:
    flink = flink or Flink(catalog=lake.catalog, checkpoint_seconds=0.5)
    run = dg.materialize(
        [orders_flink, afterwards],
        resources={"spark": lake.spark, "flink": flink, "duckdb": lake.duckdb},
        raise_on_error=False,
    )
    (check,) = run.get_asset_check_evaluations()
    assert check.check_name == CHECK
    return run, check


def test_without_flink_it_warns() -> None:
    """In a proof, what comes after it runs: tests/smoke/test_proof.py."""
    check = unavailable(FlinkUnavailable("install it"))
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["status"].value == "unavailable"
    assert "install it" in str(check.metadata["what to do"].value)


class Dividing(Flink):
    """Has rows to write that cannot be computed."""

    def insert(self, inserts: Sequence[Insert]) -> FlinkRun:
        return super().insert([replace(each, columns=("1 / (seq - seq)", *each.columns[1:])) for each in inserts])


@pytest.fixture
def new_state(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without state."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.usefixtures("new_state")
def test_a_job_that_fails_is_an_error_and_stops_what_comes_after(lake: Lakehouse) -> None:
    run, check = materialized(lake, Dividing(catalog=lake.catalog, restarts=0))
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.metadata["status"].value == "failed"
    assert "/ by zero" in str(check.metadata["error"].value)
    assert not run.asset_materializations_for_node("afterwards")
    assert lake.catalog.bearer_token() not in str([event.event_specific_data for event in run.all_events])


@pytest.mark.stack
@pytest.mark.long
def test_rows_that_flink_did_not_commit_do_not_pass_for_its_own(lake: Lakehouse) -> None:
    for _ in range(2):
        run, check = materialized(lake, WrittenBySpark(catalog=lake.catalog))
        assert check.metadata["wrong"].value == (
            "orders_flink: 0 commits by Flink for 6 checkpoints; orders: 0 commits by Flink for 2 checkpoints"
        )
        assert not run.asset_materializations_for_node("afterwards")
    assert lake.spark.count(ORDERS_FLINK) == len(BY_FLINK.keys)


RIGHT = Digest(10, 77)


@pytest.mark.parametrize(
    ("digest", "versions", "wrong"),
    [
        (RIGHT, (4, 6), ""),
        (RIGHT, (4,), ""),
        (Digest(9, 70), (4, 6), "orders: 9 rows, not 10"),
        (Digest(11, 80), (4, 6), "orders: 11 rows, not 10"),
        (Digest(10, 80), (4, 6), "orders: 10 rows, but not those that Flink was to write"),
        (RIGHT, (), "orders: 0 commits by Flink for 2 checkpoints"),
        (RIGHT, (4, 6, 7), "orders: 3 commits by Flink for 2 checkpoints"),
    ],
)
def test_findings_of_the_flink_step(digest: Digest, versions: tuple[int, ...], wrong: str) -> None:
    three_thousand = Digest(3000, 5)
    own = Found(OWN, three_thousand, three_thousand, versions=(1, 2, 3, 4, 5, 6), checkpoints=6)
    check = written([own, Found(SHARED, RIGHT, digest, versions, checkpoints=2)], JOBS)
    assert check.passed == (not wrong)
    assert check.severity is dg.AssetCheckSeverity.ERROR
    assert check.metadata["status"].value == ("wrong" if wrong else "written")
    assert ("wrong" in check.metadata) == bool(wrong)
    if wrong:
        assert check.metadata["wrong"].value == wrong
