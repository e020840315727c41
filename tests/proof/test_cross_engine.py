"""The results of the cross-engine proof, on what is right and on what is not."""

import datetime as dt
from dataclasses import replace

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.proof import proof_ledger, verify_step
from ratify_lakehouse.proof.proof_tables import ORDERS
from ratify_lakehouse.proof.row_digest import Block, Digest, DigestPart
from ratify_lakehouse.proof.tpch_queries import alike
from ratify_lakehouse.proof.verify_step import commits_as_recorded, commits_by_engine, history_without_gaps
from tests.engines.lakehouse import pairs

OLD, NEW = Block(0, 9), Block(10, 19)


def commit(version: int, engine: Engine, operation: str = "WRITE") -> Commit:
    return Commit(version, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), operation, engine, engine.value)


def entry(version: int, engine: Engine, block: Block | None = None, operation: str = "WRITE") -> proof_ledger.ProofEntry:
    return proof_ledger.ProofEntry("a step", engine, "orders", operation, version, block, Digest(version, 0))


HISTORY = {"orders": [commit(2, Engine.DATABRICKS), commit(1, Engine.DUCKDB), commit(0, Engine.SPARK)]}


@pytest.mark.parametrize(("left_out", "latest"), [(0, 2), (1, 2), (2, 2), (None, 3)])
def test_a_gap_is_found(left_out: int | None, latest: int) -> None:
    assert history_without_gaps(HISTORY, {"orders": 2}).passed
    commits = [commit for commit in HISTORY["orders"] if commit.version != left_out]
    assert not history_without_gaps({"orders": commits}, {"orders": latest}).passed


def test_a_commit_has_the_engine_that_says_so() -> None:
    # Databricks Runtime is the Spark of a workspace.
    assert commits_as_recorded(HISTORY, [entry(1, Engine.DUCKDB), entry(2, Engine.SPARK)]).passed
    assert not commits_as_recorded(HISTORY, [entry(1, Engine.SPARK)]).passed
    assert not commits_as_recorded(HISTORY, [entry(3, Engine.SPARK)]).passed
    assert not commits_as_recorded({"orders": [commit(0, Engine.OTHER)]}, []).passed


def test_commits_are_counted_by_engine() -> None:
    expected = {"table": "orders", "version": 2, "Spark": 1, "Databricks Runtime": 1, "DuckDB": 1}
    assert commits_by_engine(HISTORY) == [expected]


def test_the_last_line_of_a_block_tells_what_is_there() -> None:
    entries = (entry(1, Engine.DUCKDB, OLD, proof_ledger.LOAD), entry(2, Engine.DUCKDB, NEW), entry(3, Engine.SPARK, NEW))
    run = proof_ledger.Run("r", 0.01, entries)
    assert [(at.version, at.block) for at in run.last()] == [(1, OLD), (3, NEW)]
    assert [at.version for at in run.baseline()] == [1]


def test_a_quick_proof_travels_to_three_versions_of_each_table() -> None:
    entries = [entry(version, Engine.SPARK, block) for version in range(1, 8) for block in (OLD, NEW)]
    other = replace(entry(3, Engine.SPARK), table="nation")
    chosen = verify_step._first_middle_last([*entries, other])
    assert [(at.table, at.version) for at in chosen] == [
        *(("orders", version) for version in (1, 4, 7) for _ in range(2)),
        ("nation", 3),
    ]


def test_no_digest_of_what_engines_write_differently() -> None:
    assert DigestPart.of(ORDERS, "t", NEW).where == "o_orderkey BETWEEN 10 AND 19"
    with pytest.raises(UnsafeDeclaration, match="column at: no digest is defined for a timestamp"):
        DigestPart.of(pairs(columns=(proof_ledger.Column("at", "timestamp"),)), "t")


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ([["A", "1.50"]], [["A", "1.5"]], True),
        ([["A", "25.575155"]], [["A", "25.575154611454693"]], True),
        ([["A", "25.575155"]], [["A", "25.575200"]], False),
        ([["b", "2"], ["a", "1"]], [["a", "1"], ["b", "2"]], True),
        ([["a", "1.0000001"], ["a", "2"]], [["a", "2.0000001"], ["a", "1"]], True),
        ([[""]], [[]], True),
        ([["0"]], [[]], False),
        ([["a"]], [["a"], ["a"]], False),
        ([["a"], ["a"]], [["a"]], False),
        ([["a", "1"]], [["a"]], False),
        ([["A"]], [["a"]], False),
        ([], [], True),
    ],
)
def test_answers_are_alike(found: list[list[str]], wanted: list[list[str]], expected: bool) -> None:
    assert alike(found, wanted) is expected
