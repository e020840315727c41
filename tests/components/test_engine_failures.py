"""A step that fails by an engine's error shows one line; the engine's stack is in its log, at the level DEBUG."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import duckdb
import pytest
from pyspark.errors.exceptions.connect import AnalysisException, SparkConnectGrpcException

from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.errors import TableMissing
from tests.components.test_stored_table import Declared, declared

__all__ = ["declared"]

STACK = (
    "org.apache.spark.sql.AnalysisException\n\tat org.apache.spark.sql.Dataset.ofRows(Dataset.scala:98)\n\tat x.Y.z(Y.java)"
)
THEN = "Correct what this names, and run it again; the log of the step has the engine's own text, at the level DEBUG."


def of_spark(kind: type[SparkConnectGrpcException], text: str) -> Callable[[], Any]:
    def fail() -> Any:
        raise kind(message=text, server_stacktrace=STACK, display_server_stacktrace=True)

    return fail


def failed(compute: Callable[[], Any], *, hides: bool = False, check: bool = False) -> tuple[dg.ExecuteInProcessResult, str]:
    """A run of an asset, or of its check, that fails; and all that its page shows of the error."""

    @dg.multi_asset(name="made", specs=[dg.AssetSpec("a")])
    @in_one_line("gold.a", lambda: hides)
    def asset() -> Iterator[dg.MaterializeResult[Any]]:
        if not check:
            compute()
        yield dg.MaterializeResult(asset_key="a")

    @dg.multi_asset_check(name="checked", specs=[dg.AssetCheckSpec("c", asset="a")])
    @in_one_line("gold.a", lambda: hides)
    def checks() -> Any:
        compute()

    job = dg.Definitions(assets=[asset], asset_checks=[checks]).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(raise_on_error=False)
    shown, error = (
        list[str](),
        done.all_events and next(e for e in done.all_events if e.is_step_failure).step_failure_data.error,
    )
    while error:
        shown.append(error.message)
        error = error.cause or error.context
    return done, "".join(shown[1:]).strip()


@pytest.mark.parametrize(
    ("compute", "line"),
    [
        (
            of_spark(
                AnalysisException, "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1) ==\nSELECT 1/0\n^^"
            ),
            "Spark: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        ),
        (of_spark(SparkConnectGrpcException, "(java.io.IOException) File name too long\n\tat a.B.c(B.java:1)"), ""),
        (lambda: duckdb.sql("SELECT 1/x"), "DuckDB: Binder Error: Referenced column"),
        (
            lambda: duckdb.sql("SELECT CAST('Ann' AS INT)").fetchall(),
            "DuckDB: Conversion Error: Could not convert string 'Ann' to INT32",
        ),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_the_failure_is_one_line(compute: Callable[[], Any], line: str, check: bool) -> None:
    _, shown = failed(compute, check=check)
    assert shown.startswith("ratify_lakehouse.errors.QueryFailed: gold.a: ")
    assert line in shown
    assert shown.endswith(THEN)
    assert "\n" not in shown
    assert ".java" not in shown
    assert ".scala" not in shown


def test_the_stack_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    failed(of_spark(AnalysisException, "one"))
    logged = capsys.readouterr().err
    assert re.search(r" - DEBUG - .*made - one\n\nJVM stacktrace:\n", logged)
    assert logged.count("Dataset.scala:98") == 1


def test_a_personal_value_is_in_neither(capsys: pytest.CaptureFixture[str]) -> None:
    # Not in the code, of which Dagster shows the lines of the stack.
    person = "nnA"[::-1]
    _, shown = failed(lambda: duckdb.sql(f"SELECT CAST('{person}' AS INT)").fetchall(), hides=True)
    assert "Could not convert string '…' to INT32" in shown
    assert person not in capsys.readouterr().err


def test_an_error_of_ours_is_as_it_was() -> None:
    def fail() -> None:
        raise TableMissing("it is not there")

    assert failed(fail)[1] == "ratify_lakehouse.errors.TableMissing: it is not there"


def test_an_error_of_ours_is_without_that_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    person = "nnA"[::-1]
    of_engine = of_spark(AnalysisException, f"'{person}' is none")

    def fail() -> None:
        try:
            try:
                of_engine()
            except AnalysisException as error:
                raise TableMissing("it is not there") from error
        except TableMissing as error:
            raise ValueError("it was not read") from error

    _, shown = failed(fail, hides=True)
    assert re.fullmatch(r"ValueError: it was not read\s+ratify_lakehouse\.errors\.TableMissing: it is not there", shown)
    logged = capsys.readouterr().err
    assert " - DEBUG - " in logged
    assert "Dataset.scala:98" in logged
    assert person not in logged


def test_every_step_of_the_project_fails_so() -> None:
    found = declared_tables().definitions
    steps = [each for each in (*(found.assets or ()), *(found.asset_checks or ())) if isinstance(each, dg.AssetsDefinition)]
    computed = {step.op.name: step.op.compute_fn for step in steps}
    assert len(computed) > 40
    bare = [name for name, compute in computed.items() if not hasattr(getattr(compute, "decorated_fn", None), "__wrapped__")]
    assert bare == []


FAILING = {
    "CAST(concat('x', v) AS INT)": "Spark: [CAST_INVALID_INPUT] The value 'x10' of the type ",
    "v DIV (id - 1)": "Spark: [DIVIDE_BY_ZERO] Division by zero.",
    "from_json('{', 'n INT', map('mode', 'FAILFAST')).n": "Spark: [MALFORMED_RECORD_IN_PARSING",
    "element_at(array(v), id)": "Spark: [INVALID_ARRAY_INDEX_IN_ELEMENT_AT] The index 2 is out of bounds.",
    "CAST(raise_error(concat('first', chr(10), 'second')) AS INT)": "Spark: [USER_RAISED_EXCEPTION] first second",
}
"""What Spark cannot compute of a row, and how its error begins."""


@pytest.mark.stack
def test_what_spark_cannot_compute_fails_its_step_by_one_line(declared: Declared) -> None:
    where = declared.t
    for expression, begin in FAILING.items():
        declared.declare("full", f"day, id, {expression} AS v")
        line = declared.run().strip()
        assert line.startswith(f"ratify_lakehouse.errors.QueryFailed: {where}: {begin}")
        assert line.endswith(f". {THEN}")
        assert not re.search(r"\n|\tat |\.scala|\.java|stacktrace|== SQL", line)
    # What is a partition is refused while it is written, by an error of ours.
    declared.declare("full", "day, id, repeat('x', 300) AS v", more=", partition_by: [v]")
    line = declared.run().strip()
    wrong = "a text of 300 characters, for which the name of a folder, of 255 bytes at most, has no room"
    assert line.startswith("ratify_lakehouse.errors.AppendFailed: ")
    assert f"{where}, column v, the row with day = 2026-01-01, id = " in line
    assert f": {wrong}. Nothing was written. Give such rows another value" in line
    assert "\n" not in line
