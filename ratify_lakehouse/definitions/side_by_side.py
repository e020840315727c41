"""The executor of runs: steps one after the other in the run's process, but for tables that a server computes side by side.

A step that computes a table waits for Spark's server, which has room for another one meanwhile. Such steps have the tag
`SIDE_BY_SIDE`. They run in threads, each with a Spark session of its own; a process for each would cost its start, several
seconds. All other steps run in the main thread, so that a signal reaches them: loads, streams and checks.

Dagster's own executors run steps in one thread, or in many processes. This one is made of the parts of its in-process one.
"""

import os
import queue
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

import dagster as dg
from dagster._core.errors import raise_execution_interrupts
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.compute_logs import create_compute_log_file_key
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext, StepExecutionContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.execute_plan import _trigger_hook, dagster_event_sequence_for_step
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.step import ExecutionStep
from dagster._core.execution.retries import RetryMode

from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE
from ratify_lakehouse.definitions.unexecuted_checks import report_unexecuted
from ratify_lakehouse.engines.spark.spark_sessions import SessionScope, import_client

_TABLES_AT_ONCE = 2


class SideBySideExecutor(dg.Executor):
    """See the module.

    Args:
        tables_at_once: Tables that Spark computes at the same time, at most.
    """

    def __init__(self, tables_at_once: int) -> None:
        self._tables_at_once = tables_at_once

    @property
    def retries(self) -> RetryMode:
        """Steps may ask to be retried."""
        return RetryMode.ENABLED

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        """Run the steps of a plan, and yield their events."""
        in_process = EngineEventData.in_process(os.getpid(), execution_plan.step_keys_to_execute)
        message = f"Executing steps in process (pid: {os.getpid()}), {self._tables_at_once} tables side by side"
        yield DagsterEvent.engine_event(plan_context, message, event_specific_data=in_process)
        yield from ExecuteRunWithPlanIterable(
            execution_plan=plan_context.execution_plan,
            iterator=self._run,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=plan_context.execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
                step_dependency_config=self.step_dependency_config,
            ),
        )
        yield DagsterEvent.engine_event(plan_context, "Finished steps in process", event_specific_data=in_process)

    def _run(self, job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        with ExitStack() as opened:
            slots = opened.enter_context(InstanceConcurrencyContext(job_context.instance, job_context.dagster_run))
            active = opened.enter_context(
                execution_plan.start(
                    retry_mode=job_context.retry_mode,
                    instance_concurrency_context=slots,
                    step_dependency_config=job_context.step_dependency_config,
                )
            )
            logs = job_context.instance.compute_log_manager
            log_key = logs.build_log_key_for_run(job_context.run_id, create_compute_log_file_key())
            captured = opened.enter_context(logs.capture_logs(log_key))
            keys = [step.key for step in execution_plan.get_steps_to_execute_in_topo_order()]
            yield DagsterEvent.capture_logs(job_context, keys, log_key, captured)
            steps = _Steps(job_context, active, opened.enter_context(_workers(self._tables_at_once)))
            yield from steps.run()
            steps.report_unexecuted(execution_plan)


@dataclass(frozen=True)
class _Ended:
    """A step has ended in its thread. `error`: what Dagster made no event of, such as an interruption."""

    step: str
    error: BaseException | None = None


@dataclass
class _Workers:
    """Threads, as many as there are scopes, and the events of the steps that run in them."""

    threads: ThreadPoolExecutor
    idle: list[SessionScope]
    running: dict[str, tuple[SessionScope, StepExecutionContext]]
    events: queue.SimpleQueue[tuple[str, DagsterEvent] | _Ended]

    def start(self, context: StepExecutionContext) -> None:
        """Run a step in an idle thread."""
        if context.step.tags[SIDE_BY_SIDE] == "spark":
            import_client()
        scope = self.idle.pop()
        self.running[context.step.key] = scope, context
        self.threads.submit(self._work, context, scope)

    def _work(self, context: StepExecutionContext, scope: SessionScope) -> None:
        error: BaseException | None = None
        try:
            with scope.entered():
                for event in dagster_event_sequence_for_step(context):
                    self.events.put((context.step.key, event))
        except BaseException as caught:  # noqa: BLE001 the main thread raises it
            error = caught
        self.events.put(_Ended(context.step.key, error))

    def ended(self, step: str) -> StepExecutionContext:
        """Return the context of a step that has ended; its thread is idle."""
        scope, context = self.running.pop(step)
        self.idle.append(scope)
        return context


@contextmanager
def _workers(number: int) -> Generator[_Workers]:
    scopes = [SessionScope() for _ in range(number)]
    with ThreadPoolExecutor(number, "table") as threads:
        try:
            yield _Workers(threads, list(scopes), {}, queue.SimpleQueue())
        finally:
            # Where the run was stopped, its tables must not go on: otherwise nothing runs here any more.
            for scope in scopes:
                scope.interrupt()


class _Steps:
    """The steps of a run."""

    def __init__(self, job_context: PlanExecutionContext, active: ActiveExecution, workers: _Workers) -> None:
        self._job_context, self._active, self._workers = job_context, active, workers
        self._tables, self._others = deque[ExecutionStep](), deque[ExecutionStep]()
        self._events = dict[str, list[DagsterEvent]]()
        self._executed, self._failed, self._evaluated = set[str](), set[str](), set[dg.AssetCheckKey]()

    def report_unexecuted(self, plan: ExecutionPlan) -> None:
        """Report the checks that a failure has left without a result."""
        if self._failed:
            steps = plan.get_steps_to_execute_in_topo_order()
            report_unexecuted(self._job_context.instance, steps, self._failed, self._executed, self._evaluated)

    def run(self) -> Iterator[DagsterEvent]:
        """Run them all, and yield their events."""
        while not self._active.is_complete:
            for step in self._active.get_steps_to_execute():
                (self._tables if SIDE_BY_SIDE in step.tags else self._others).append(step)
            yield from self._active.concurrency_event_iterator(self._job_context)
            while self._tables and self._workers.idle:
                self._workers.start(self._context(self._tables.popleft()))
            if self._others:
                yield from self._run_here(self._context(self._others.popleft()))
                while not self._workers.events.empty():
                    yield from self._next_event()
            elif self._workers.running:
                yield from self._next_event()
            else:
                self._active.sleep_til_ready()

    def _context(self, step: ExecutionStep) -> StepExecutionContext:
        return cast("StepExecutionContext", self._job_context.for_step(step, self._active.get_known_state()))

    def _run_here(self, context: StepExecutionContext) -> Iterator[DagsterEvent]:
        events = list[DagsterEvent]()
        for event in dagster_event_sequence_for_step(context):
            events.append(event)
            yield event
        yield from self._end(context, events)

    def _next_event(self) -> Iterator[DagsterEvent]:
        with raise_execution_interrupts():
            found = self._workers.events.get()
        if not isinstance(found, _Ended):
            step, event = found
            self._events.setdefault(step, []).append(event)
            yield event
            return
        context = self._workers.ended(found.step)
        if found.error:
            raise found.error
        yield from self._end(context, self._events.pop(found.step, []))

    def _end(self, context: StepExecutionContext, events: list[DagsterEvent]) -> Iterator[DagsterEvent]:
        self._executed.add(context.step.key)
        # Only now: a step that is to be retried would otherwise begin again before its thread has ended.
        for event in events:
            self._active.handle_event(event)
            if event.is_step_failure:
                self._failed.add(context.step.key)
            elif event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                self._evaluated.add(event.asset_check_evaluation_data.asset_check_key)
        self._active.verify_complete(self._job_context, context.step.key)
        yield from self._active.plan_events_iterator(self._job_context)
        yield from _trigger_hook(context, events)


@dg.executor(
    name="side_by_side",
    config_schema={"tables_at_once": dg.Field(int, default_value=_TABLES_AT_ONCE, description="Bound of tables in work")},
)
def side_by_side_executor(init: dg.InitExecutorContext) -> SideBySideExecutor:
    """Run steps one after the other in this process, but for tables that Spark computes: these side by side."""
    return SideBySideExecutor(cast("int", init.executor_config["tables_at_once"]))
