"""`ratify prove`: the cross-engine proof, run through Dagster, and what came of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any
from uuid import uuid4

import dagster as dg
import typer

from assets.cross_engine.proof_assets import COMMITS, cross_engine_assets
from assets.cross_engine.proof_report import UNAVAILABLE
from assets.cross_engine.proof_steps import GROUP, KEYS, Step
from embedded.file_locks import exclusive
from orchestration.cli import cli_session
from orchestration.definitions import defs
from resources.settings import Settings

_ENGINES = {
    "spark": (Step.SPARK_READ, Step.SPARK_WRITE, Step.STREAMING),
    "flink": (Step.FLINK,),
    "duckdb": (Step.DUCKDB_READ, Step.DUCKDB_INSERT),
}
_NO_ENGINE = "Say which engines are to take part: -a (all), -s (Spark), -f (Flink), -d (DuckDB); they may be combined."


class StepOutcome(StrEnum):
    """What became of a step."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    NOT_RUN = "not run"


@dataclass
class ProofProgress:
    """The events of the run as they come: what each step did, how long it took, and what its checks found."""

    outcomes: dict[Step, StepOutcome] = field(default_factory=dict[Step, StepOutcome])
    seconds: dict[Step, float] = field(default_factory=dict[Step, float])
    details: dict[Step, str] = field(default_factory=dict[Step, str])
    checks: list[dg.AssetCheckEvaluation] = field(default_factory=list[dg.AssetCheckEvaluation])
    commits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def outcome(self, step: Step) -> StepOutcome:
        """Return what became of a step."""
        return self.outcomes.get(step, StepOutcome.NOT_RUN)

    def see(self, entry: dg.EventLogEntry) -> None:
        """Take in one event."""
        event = entry.dagster_event
        if event is None or event.step_key is None:
            return
        if (step := _step_of(event.step_key)) is None:
            return
        match event.event_type:
            case dg.DagsterEventType.STEP_START:
                cli_session.progress(f"{step.value} …")
            case dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                self._see_check(step, event.asset_check_evaluation_data)
            case dg.DagsterEventType.ASSET_MATERIALIZATION:
                self._see_materialization(event.step_materialization_data.materialization.metadata)
            case dg.DagsterEventType.STEP_SUCCESS:
                self.seconds[step] = event.step_success_data.duration_ms / 1000
                self.outcomes.setdefault(step, StepOutcome.PASSED)
            case dg.DagsterEventType.STEP_FAILURE:
                # A check that blocks makes a step fail that has failed already, with less to say.
                self.outcomes[step] = StepOutcome.FAILED
                self.details.setdefault(step, _reason(event.step_failure_data.error))
            case _:
                return

    def _see_check(self, step: Step, check: dg.AssetCheckEvaluation) -> None:
        self.checks.append(check)
        if check.passed:
            return
        away = "status" in check.metadata and check.metadata["status"].value == UNAVAILABLE
        self.outcomes[step] = StepOutcome.UNAVAILABLE if away else StepOutcome.FAILED
        said = check.description or "; ".join(f"{name}: {value.value}" for name, value in check.metadata.items())
        self.details[step] = f"{check.check_name}: {said}"

    def _see_materialization(self, metadata: Mapping[str, dg.MetadataValue[Any]]) -> None:
        if isinstance(table := metadata.get(COMMITS), dg.TableMetadataValue):
            self.commits = [dict(record.data) for record in table.records]


def prove(
    everything: Annotated[bool, typer.Option("-a", "--all", help="Every engine.")] = False,
    spark: Annotated[bool, typer.Option("-s", "--spark", help="Spark, batch and streaming.")] = False,
    flink: Annotated[bool, typer.Option("-f", "--flink", help="Flink.")] = False,
    duckdb: Annotated[bool, typer.Option("-d", "--duckdb", help="DuckDB.")] = False,
    setup: Annotated[bool, typer.Option(" /--no-setup", help="Go on with the tables that are there.")] = True,
    cleanup: Annotated[bool, typer.Option(" /--no-cleanup", help="Leave the tables.")] = True,
    scale_factor: Annotated[float, typer.Option(min=0.0001, help="Of TPC-H: 1 is about 1 GB.")] = 0.01,
) -> None:
    """Prove on TPC-H that every engine reads what the others wrote, and that one history names them all."""
    asked = [name for name, wanted in (("spark", spark), ("flink", flink), ("duckdb", duckdb)) if everything or wanted]
    if not asked:
        raise typer.BadParameter(_NO_ENGINE)
    steps = steps_of(asked, setup=setup, cleanup=cleanup)
    alone = exclusive(Settings().home / GROUP / "lock", cli_session.progress, "the tables of the proof")
    with alone, cli_session.stack_for_this_process():
        progress = _run(steps, scale_factor)
    results = _results(steps, progress)
    _show(results, progress)
    raise typer.Exit(0 if passed([progress.outcome(step) for step in steps], asked) else 1)


def steps_of(engines: Sequence[str], *, setup: bool, cleanup: bool) -> list[Step]:
    """Return the steps of a run, in their order."""
    wanted = {step for engine in engines for step in _ENGINES[engine]} | {Step.VERIFY}
    wanted |= {step for step, said in ((Step.SETUP, setup), (Step.CLEANUP, cleanup)) if said}
    return [step for step in Step if step in wanted]


def _step_of(node: str) -> Step | None:
    """The step that a node of the job is, by what it materializes."""
    keys = next((asset.keys for asset in cross_engine_assets if asset.node_def.name == node), frozenset[dg.AssetKey]())
    return next((step for step in Step if set(KEYS[step]) <= set(keys)), None)


def _run(steps: Sequence[Step], scale_factor: float) -> ProofProgress:
    job = defs.resolve_job_def("cross_engine_proof")
    known = set(job.asset_layer.executable_asset_keys)
    progress, run_id = ProofProgress(), str(uuid4())
    there = [step for step in steps if known.issuperset(KEYS[step])]
    configured = {"ops": {Step.SETUP.value: {"config": {"scale_factor": scale_factor}}}} if Step.SETUP in steps else {}
    with cli_session.dagster_instance() as instance:
        cli_session.close_dead_runs(instance)
        instance.add_event_listener(run_id, progress.see)
        job.execute_in_process(
            run_config={**configured, **cli_session.QUIET},
            asset_selection=[key for step in there for key in KEYS[step]],
            tags=cli_session.process_tag(),
            instance=instance,
            run_id=run_id,
            raise_on_error=False,
        )
    for step in set(steps) - set(there):
        progress.outcomes[step] = StepOutcome.UNAVAILABLE
        progress.details[step] = "It is not part of this installation."
    return progress


def _results(steps: Sequence[Step], progress: ProofProgress) -> list[dict[str, Any]]:
    return [
        {
            "step": step.value.replace("_", " "),
            "result": progress.outcome(step).value,
            "seconds": f"{progress.seconds[step]:.1f}" if step in progress.seconds else "",
            "detail": progress.details.get(step, ""),
        }
        for step in steps
    ]


def passed(outcomes: Iterable[StepOutcome], engines: Sequence[str]) -> bool:
    """Return whether everything that could be had passed; an engine that alone was asked for has to be there."""
    allowed = {StepOutcome.PASSED, StepOutcome.UNAVAILABLE} if len(engines) > 1 else {StepOutcome.PASSED}
    return set(outcomes) <= allowed


def _show(results: list[dict[str, Any]], progress: ProofProgress) -> None:
    cli_session.show("Steps", results)
    if progress.commits:
        cli_session.show("Commits by engine", progress.commits)
    cli_session.show(
        "Checks",
        [
            {"check": check.check_name, "passed": "yes" if check.passed else "NO", "found": check.description or ""}
            for check in progress.checks
        ],
    )
    for result in results:
        if result["result"] != StepOutcome.PASSED:
            cli_session.err.print(f"[red]{result['step']}: {result['result']}.[/red] {result['detail']}", highlight=False)
    if all(result["result"] == StepOutcome.PASSED for result in results):
        cli_session.out.print("[green]Every step and check passed.[/green]", highlight=False)


def _reason(error: Any) -> str:
    """The error that a step has failed with, below those in which Dagster wraps it."""
    while error and error.cause:
        error = error.cause
    return error.message.strip().splitlines()[0] if error else ""
