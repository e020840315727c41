"""The run of `ratify prove`, through Dagster, and the report of its results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.job_run import close_dead_runs, run_job
from ratify_lakehouse.cli.stack_session import stack_for_this_process
from ratify_lakehouse.cli.terminal_output import err, out, progress, show, styled
from ratify_lakehouse.definitions import proof_definitions
from ratify_lakehouse.definitions.project_folders import project_root
from ratify_lakehouse.embedded.file_locks import exclusive
from ratify_lakehouse.proof.proof_assets import COMMITS, cross_engine_assets
from ratify_lakehouse.proof.proof_report import UNAVAILABLE
from ratify_lakehouse.proof.proof_steps import GROUP, KEYS, Step
from ratify_lakehouse.settings import Settings

_ENGINES = {
    "spark": (Step.SPARK_READ, Step.SPARK_WRITE, Step.STREAMING),
    "flink": (Step.FLINK,),
    "duckdb": (Step.DUCKDB_READ, Step.DUCKDB_INSERT),
}

_JOB = proof_definitions.cross_engine_proof.name


class StepOutcome(StrEnum):
    """What became of a step."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    NOT_RUN = "not run"


@dataclass
class ProofProgress:
    """What the run's events report: what each step did, how long it took, and what its checks found."""

    outcomes: dict[Step, StepOutcome] = field(default_factory=dict[Step, StepOutcome])
    seconds: dict[Step, float] = field(default_factory=dict[Step, float])
    details: dict[Step, str] = field(default_factory=dict[Step, str])
    checks: list[dg.AssetCheckEvaluation] = field(default_factory=list[dg.AssetCheckEvaluation])
    commits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def outcome(self, step: Step) -> StepOutcome:
        """Return what became of a step."""
        return self.outcomes.get(step, StepOutcome.NOT_RUN)

    def record(self, entry: dg.EventLogEntry) -> None:
        """Record one event."""
        event = entry.dagster_event
        if event is None or event.step_key is None:
            return
        if (step := _step_of(event.step_key)) is None:
            return
        match event.event_type:
            case dg.DagsterEventType.STEP_START:
                progress(f"{step.value} …")
            case dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                self._record_check(step, event.asset_check_evaluation_data)
            case dg.DagsterEventType.ASSET_MATERIALIZATION:
                self._record_materialization(event.step_materialization_data.materialization.metadata)
            case dg.DagsterEventType.STEP_SUCCESS:
                self.seconds[step] = event.step_success_data.duration_ms / 1000
                self.outcomes.setdefault(step, StepOutcome.PASSED)
            case dg.DagsterEventType.STEP_FAILURE:
                # A blocking check fails the step too, with a less specific error than the check's own.
                self.outcomes[step] = StepOutcome.FAILED
                self.details.setdefault(step, _reason(event.step_failure_data.error))
            case _:
                return

    def _record_check(self, step: Step, check: dg.AssetCheckEvaluation) -> None:
        self.checks.append(check)
        if check.passed:
            return
        unavailable = "status" in check.metadata and check.metadata["status"].value == UNAVAILABLE
        self.outcomes[step] = StepOutcome.UNAVAILABLE if unavailable else StepOutcome.FAILED
        found = check.description or "; ".join(f"{name}: {value.value}" for name, value in check.metadata.items())
        self.details[step] = f"{check.check_name}: {found}"

    def _record_materialization(self, metadata: Mapping[str, dg.MetadataValue[Any]]) -> None:
        if isinstance(table := metadata.get(COMMITS), dg.TableMetadataValue):
            self.commits = [dict(record.data) for record in table.records]


def run_proof(engines: Sequence[str], *, setup: bool, cleanup: bool, scale_factor: float, quick: bool) -> bool:
    """Run the proof for some engines, print the results, and return whether it passed.

    Raises:
        NoProject: the current folder belongs to none.
    """
    project_root()
    steps = steps_of(engines, setup=setup, cleanup=cleanup)
    lock = exclusive(Settings().home / GROUP / "lock", progress, "the tables of the proof")
    with lock, stack_for_this_process():
        proof = _run(steps, scale_factor, quick=quick)
    results = _results(steps, proof)
    _show(results, proof)
    return passed([proof.outcome(step) for step in steps], engines)


def steps_of(engines: Sequence[str], *, setup: bool, cleanup: bool) -> list[Step]:
    """Return the steps of a run, in their order."""
    wanted = {step for engine in engines for step in _ENGINES[engine]} | {Step.VERIFY}
    wanted |= {step for step, chosen in ((Step.SETUP, setup), (Step.CLEANUP, cleanup)) if chosen}
    return [step for step in Step if step in wanted]


def _step_of(node: str) -> Step | None:
    """Return the step that a node of the job runs, by what the node materializes."""
    keys = next((asset.keys for asset in cross_engine_assets if asset.node_def.name == node), frozenset[dg.AssetKey]())
    return next((step for step in Step if set(KEYS[step]) <= set(keys)), None)


def _run(steps: Sequence[Step], scale_factor: float, *, quick: bool) -> ProofProgress:
    job = proof_definitions.defs.resolve_job_def(_JOB)
    known = set(job.asset_layer.executable_asset_keys)
    proof, run_id = ProofProgress(), str(uuid4())
    runnable = [step for step in steps if known.issuperset(KEYS[step])]
    options = {Step.SETUP: {"scale_factor": scale_factor}, Step.VERIFY: {"quick": quick}}
    configured = {"ops": {step.value: {"config": of_step} for step, of_step in options.items() if step in runnable}}
    with dagster_instance() as instance:
        close_dead_runs(instance)
        instance.add_event_listener(run_id, proof.record)
        keys = [key for step in runnable for key in KEYS[step]]
        run_job(instance, proof_definitions, _JOB, keys, run_id=run_id, config=configured)
    for step in set(steps) - set(runnable):
        proof.outcomes[step] = StepOutcome.UNAVAILABLE
        proof.details[step] = "It is not part of this installation."
    return proof


def _results(steps: Sequence[Step], proof: ProofProgress) -> list[dict[str, Any]]:
    return [
        {
            "step": step.value.replace("_", " "),
            "result": proof.outcome(step).value,
            "seconds": f"{proof.seconds[step]:.1f}" if step in proof.seconds else "",
            "detail": proof.details.get(step, ""),
        }
        for step in steps
    ]


def passed(outcomes: Iterable[StepOutcome], engines: Sequence[str]) -> bool:
    """Return whether all steps passed; a step may be unavailable unless its engine is the only one that was named."""
    allowed = {StepOutcome.PASSED, StepOutcome.UNAVAILABLE} if len(engines) > 1 else {StepOutcome.PASSED}
    return set(outcomes) <= allowed


def _show(results: list[dict[str, Any]], proof: ProofProgress) -> None:
    show("Steps", results)
    if proof.commits:
        show("Commits by engine", proof.commits)
    show(
        "Checks",
        [
            {"check": check.check_name, "passed": "yes" if check.passed else "NO", "found": check.description or ""}
            for check in proof.checks
        ],
    )
    for result in results:
        if result["result"] != StepOutcome.PASSED:
            err.print(styled(f"{result['step']}: {result['result']}.", "red", f" {result['detail']}"))
    if all(result["result"] == StepOutcome.PASSED for result in results):
        out.print(styled("Every step and check passed.", "green"))


def _reason(error: Any) -> str:
    """Return the error that a step failed with, without the errors in which Dagster wraps it."""
    while error and error.cause:
        error = error.cause
    return error.message.strip().splitlines()[0] if error else ""
