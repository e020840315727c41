"""The executor of runs: what runs side by side, in which thread, and how a run with such steps fails or is stopped."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.engines.spark import spark_sessions

Work = Callable[[dg.AssetExecutionContext], None]


def asset(name: str, work: Work, *deps: str, table: bool = True, retries: int = 0) -> dg.AssetsDefinition:
    tags = {SIDE_BY_SIDE: "spark"} if table else {}

    @dg.asset(
        name=name, deps=list(deps), op_tags=tags, retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None
    )
    def made(context: dg.AssetExecutionContext) -> None:
        work(context)

    return made


def run(
    instance: dg.DagsterInstance, assets: Sequence[dg.AssetsDefinition | dg.AssetChecksDefinition]
) -> dg.JobExecutionResult:
    definitions = dg.Definitions(
        assets=[each for each in assets if not isinstance(each, dg.AssetChecksDefinition)],
        asset_checks=[each for each in assets if isinstance(each, dg.AssetChecksDefinition)],
        executor=side_by_side_executor,
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    return execute_run(InMemoryJob(job), instance.create_run_for_job(job), instance)


@pytest.fixture
def instance() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


def nothing(_: dg.AssetExecutionContext) -> None:
    pass


def test_two_tables_are_computed_at_once_and_the_rest_in_the_main_thread(instance: dg.DagsterInstance) -> None:
    both, order, threads = threading.Barrier(2), list[str](), dict[str, threading.Thread]()
    most, now = [0], [0]

    def meet(context: dg.AssetExecutionContext) -> None:
        # The context of the step is that of this thread.
        assert dg.AssetExecutionContext.get().asset_key == context.asset_key
        now[0] += 1
        most[0] = max(most[0], now[0])
        both.wait(60)
        now[0] -= 1
        note(context)

    def note(context: dg.AssetExecutionContext) -> None:
        name = context.asset_key.to_user_string()
        order.append(name)
        threads[name] = threading.current_thread()

    made = [asset("load", note, table=False)]
    made += [asset(name, meet, "load") for name in ("a", "b", "c", "d")]
    made += [asset("last", note, "a", "b", "c", "d"), asset("publish", note, "last", table=False)]
    done = run(instance, made)
    assert done.success
    assert (order[0], order[-2:]) == ("load", ["last", "publish"])
    assert most == [2]
    main = {name for name, thread in threads.items() if thread is threading.main_thread()}
    assert main == {"load", "publish"}


def test_of_a_table_that_fails_only_what_is_made_of_it_is_left_out(instance: dg.DagsterInstance) -> None:
    tried = list[str]()

    def fail(_: dg.AssetExecutionContext) -> None:
        raise ValueError("no such column")

    def fail_once(context: dg.AssetExecutionContext) -> None:
        tried.append(context.asset_key.to_user_string())
        if len(tried) == 1:
            raise ValueError("a conflict")

    done = run(
        instance,
        [
            asset("bad", fail),
            asset("of_bad", nothing, "bad"),
            asset("good", fail_once, retries=1),
            asset("of_good", nothing, "good"),
        ],
    )
    assert not done.success
    assert tried == ["good", "good"]
    ended = done.get_asset_materialization_events()
    materialized = {event.asset_key.to_user_string() for event in ended if event.asset_key}
    assert materialized == {"good", "of_good"}
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "no such column" in str(failed.step_failure_data.error)


def test_a_failed_check_blocks_what_is_made_of_a_table(instance: dg.DagsterInstance) -> None:
    @dg.asset_check(asset="a", blocking=True)
    def is_right() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    ran = list[str]()

    def note(context: dg.AssetExecutionContext) -> None:
        ran.append(context.asset_key.to_user_string())

    done = run(instance, [asset("a", note), asset("b", note, "a"), asset("c", note), is_right])
    assert not done.success
    assert sorted(ran) == ["a", "c"]


def test_a_check_that_a_failure_left_out_has_not_failed(instance: dg.DagsterInstance) -> None:
    """A run in which all is right; one in which an expectation fails; and a check that could not be evaluated."""
    wrong = [True]

    @dg.multi_asset(
        specs=[dg.AssetSpec("a")],
        check_specs=[dg.AssetCheckSpec(name, asset="a", blocking=True) for name in ("positive", "known")],
    )
    def a() -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[Any]]:
        yield dg.AssetCheckResult(check_name="positive", passed=not wrong[0])
        if wrong[0]:
            raise ValueError("rows fail")
        yield dg.AssetCheckResult(check_name="known", passed=True, description="All are known.")
        yield dg.MaterializeResult()

    @dg.asset_check(asset="a", blocking=True)
    def intact() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True, description="Nothing is missing.", metadata={"files": 3})

    @dg.asset_check(asset="c")
    def breaks() -> dg.AssetCheckResult:
        raise ValueError("the catalog is away")

    @dg.asset_check(asset="b")
    def of_b() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    def shown() -> dict[str, tuple[str, bool | None, str | None]]:
        """What a page shows of each check: its status, whether it only warns, and its text."""
        run(instance, [a, asset("b", nothing, "a"), asset("c", nothing), intact, of_b, breaks])
        keys = [dg.AssetCheckKey(dg.AssetKey(table), name) for table, name in CHECKS]
        latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        found = dict[str, tuple[str, bool | None, str | None]]()
        for key, record in latest.items():
            each = record.evaluation if isinstance(record.evaluation, dg.AssetCheckEvaluation) else None
            warns = each and each.severity is dg.AssetCheckSeverity.WARN
            found[key.name] = record.status.value, warns, each and each.description
        return found

    never = ("FAILED", True, "Never executed: a, c_breaks failed.")
    first = shown()
    assert first.pop("breaks")[0] == "PLANNED"
    assert first == {"positive": ("FAILED", False, None), "known": never, "intact": never, "of_b": never}
    wrong[0] = False
    assert {status for name, (status, *_) in shown().items() if name != "breaks"} == {"SUCCEEDED"}
    wrong[0] = True
    # However often it fails: the only one that is red is the expectation.
    for _ in range(2):
        again = shown()
        assert again["positive"] == ("FAILED", False, None)
        assert again["intact"] == ("SUCCEEDED", False, "As before (a, c_breaks failed): Nothing is missing.")
        assert again["known"] == ("SUCCEEDED", False, "As before (a, c_breaks failed): All are known.")
        assert again["of_b"][0] == "SUCCEEDED"


CHECKS = (("a", "positive"), ("a", "known"), ("a", "intact"), ("b", "of_b"), ("c", "breaks"))


def test_a_run_that_is_stopped_interrupts_its_tables(instance: dg.DagsterInstance) -> None:
    interrupted, started = threading.Event(), threading.Barrier(2)

    def endless(_: dg.AssetExecutionContext) -> None:
        scope = spark_sessions._SCOPE.get()
        assert scope
        scope.add(SimpleNamespace(interruptAll=interrupted.set))  # pyright: ignore[reportArgumentType]
        started.wait(60)
        assert interrupted.wait(60)
        raise ValueError("the query was interrupted")

    def stop(_: dg.AssetExecutionContext) -> None:
        started.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.wait(60)

    before = set(threading.enumerate())
    done = run(instance, [asset("endless", endless), asset("stop", stop), asset("later", nothing, "endless")])
    assert not done.success
    assert interrupted.is_set()
    # Threads that earlier tests left may end meanwhile.
    assert set(threading.enumerate()) <= before
    (stopped,) = instance.get_runs()
    assert stopped.status in (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)


FIRST_USES = """
import threading

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor

both = threading.Barrier(2)


def asset(name, module):
    @dg.asset(name=name, op_tags={SIDE_BY_SIDE: "spark"})
    def made():
        both.wait(60)
        __import__(module)

    return made


definitions = dg.Definitions(
    assets=[asset("reads", "pyspark.errors"), asset("opens", "dagster_pyspark")], executor=side_by_side_executor
)
job = definitions.resolve_implicit_global_asset_job_def()
instance = dg.DagsterInstance.ephemeral()
assert execute_run(InMemoryJob(job), instance.create_run_for_job(job), instance).success
"""


@pytest.mark.server
def test_two_tables_may_be_the_first_of_their_process_to_use_spark() -> None:
    # Python lets one of two threads that import PySpark at once go on with a module that is half there.
    subprocess.run([sys.executable, "-c", FIRST_USES], check=True)
