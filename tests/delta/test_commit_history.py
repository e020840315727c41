"""A table's history: whose commit it was, and what a row of DESCRIBE HISTORY says."""

import datetime as dt
from typing import Any

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import commit_from_row, engine_of


@pytest.mark.parametrize(
    ("info", "engine"),
    [
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", Engine.SPARK),
        ("Databricks-Runtime/17.3.x-scala2.13", Engine.DATABRICKS),
        ("DuckDB", Engine.DUCKDB),
        ("DuckDB v1.5.5", Engine.DUCKDB),
        ("Kernel-4.4.0/DeltaSink", Engine.FLINK),
        ("Kernel-4.4.0/other", Engine.OTHER),
        ("delta-rs:0.30", Engine.OTHER),
        ("not Apache-Spark/4", Engine.OTHER),
        ("", Engine.OTHER),
        (None, Engine.OTHER),
    ],
)
def test_engine_of(info: str | None, engine: Engine) -> None:
    assert engine_of(info) is engine


def row(**changes: Any) -> dict[str, Any]:
    return {
        "version": 3,
        "timestamp": dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC),
        "operation": "WRITE",
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "operationMetrics": {"numOutputRows": "12", "numFiles": "1", "odd": "x"},
        "userMetadata": "mark",
        **changes,
    }


def test_a_row_of_spark() -> None:
    commit = commit_from_row(row())
    assert (commit.version, commit.operation, commit.engine, commit.user_metadata) == (3, "WRITE", Engine.SPARK, "mark")
    assert commit.metrics == {"numOutputRows": 12, "numFiles": 1}
    assert commit.rows_added == 12


def test_a_row_of_duckdb_has_no_number_of_rows() -> None:
    commit = commit_from_row(row(engineInfo="DuckDB", operation="UNKNOWN", operationMetrics=None, userMetadata=None))
    assert (commit.engine, commit.metrics, commit.rows_added, commit.user_metadata) == (Engine.DUCKDB, {}, None, None)


def test_a_merge_reports_inserted_rows() -> None:
    commit = commit_from_row(row(operationMetrics={"numTargetRowsInserted": "4", "numTargetRowsDeleted": "1"}))
    assert commit.rows_added == 4


def test_naive_times_are_this_process_local_time() -> None:
    local = dt.datetime(2013, 7, 1, 12)  # noqa: DTZ001 as PySpark gives it
    commit = commit_from_row(row(timestamp=local, engineInfo=None))
    assert commit.timestamp.tzinfo is dt.UTC
    assert commit.timestamp.timestamp() == local.timestamp()
    assert (commit.engine, commit.engine_info) == (Engine.OTHER, "")
