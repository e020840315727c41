"""The sensor that finds new files in the landing zone."""

import time
from pathlib import Path

import dagster as dg
from dagster._core.execution.stats import StepEventStatus

from ratify_lakehouse.components.table_asset import asset_key, step_name
from ratify_lakehouse.definitions.project_tables import sources
from ratify_lakehouse.definitions.sensors.landed_run import made_of
from ratify_lakehouse.definitions.source_jobs import ingest_job
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import TransientError
from ratify_lakehouse.ingest.discovery.discover_files import discover, drop_settled
from ratify_lakehouse.ingest.discovery.file_index import Counts, FileIndex, IndexLost, LoadRequest
from ratify_lakehouse.ingest.discovery.notifications import queue_of
from ratify_lakehouse.ingest.discovery.run_planning import Cursor, Limits, RunOutcome, plan
from ratify_lakehouse.ingest.load.file_batches import MAX_BYTES, MAX_FILES
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import Settings

REQUEST_TAG = "ratify/request"
ATTEMPT_TAG = "ratify/attempt"

LIMITS = Limits(files=MAX_FILES, size=MAX_BYTES, requests=10, open=50)
LOOK_SECONDS = 25.0
"""Time to look for files. Dagster ends a tick after 60 s; the rest is for its requests."""

LOOK_EVERY_SECONDS = 15 if "://" in Settings().landing else 5
"""From one look to the next: a store is paid for each of its requests, a folder costs little."""

LOST_AFTER_SECONDS = 3600.0
"""A request without a run by then never gets one: the daemon died in between, or the run was deleted."""

_SOURCES = {source.table_name: source for source in sources()}


@dg.sensor(
    job=ingest_job,
    minimum_interval_seconds=LOOK_EVERY_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Finds files that landed or changed, and requests runs that load them, in batches of bounded size.",
)
def landed_files_sensor(
    context: dg.SensorEvaluationContext, landing: LandingZone, duckdb: DuckDB
) -> dg.SensorResult | dg.SkipReason:
    """Request a run for each load batch of new files, and again where the run failed."""
    home = Settings().home / "discovery"
    cursor = Cursor.model_validate_json(context.cursor) if context.cursor else Cursor()
    try:
        with FileIndex.opened(home, cursor.index) as index:
            return _tick(context.instance, landing, duckdb, index, cursor, home)
    except IndexLost as error:
        return dg.SkipReason(str(error))


def _tick(
    instance: dg.DagsterInstance, landing: LandingZone, duckdb: DuckDB, index: FileIndex, cursor: Cursor, home: Path
) -> dg.SensorResult:
    settings = Settings()
    options = settings.discovery
    patterns = {name: source.pattern for name, source in _SOURCES.items()}
    now = time.time()
    cursor = cursor.model_copy(update={"index": index.name, "started_at": cursor.started_at or now})
    try:
        queue = queue_of(settings.queue) if options.mode == "notification" else None
        discover(index, landing, options, patterns, queue, home / "bad_messages", cursor.started_at or now, LOOK_SECONDS)
        if cursor.compared != index.name and drop_settled(index, duckdb, list(_SOURCES.values())):
            cursor = cursor.model_copy(update={"compared": index.name})
    except IndexLost:
        raise
    except TransientError as error:
        # This does not mean "no files": the index stays as it is, and the tick does not count.
        return dg.SensorResult(skip_reason=dg.SkipReason(str(error)), cursor=cursor.model_dump_json())
    requests = plan(
        index,
        list(_SOURCES),
        lambda request: _outcome(instance, index.name, request),
        LIMITS,
        requested=cursor.tick,
        settle_seconds=options.settle_seconds,
        now=now,
    )
    run_requests = [_run_request(index.name, request) for request in requests]
    if len(run_requests) == 1:
        # Several runs would compute the same tables: there, they follow when the last one has ended.
        (request,) = run_requests
        loaded = request.asset_selection or []
        run_requests = [request.with_replaced_attrs(asset_selection=[*loaded, *made_of(instance, loaded)])]
    return dg.SensorResult(
        run_requests=run_requests,
        skip_reason=None if requests else dg.SkipReason(_skip_message(index.counts())),
        cursor=cursor.model_copy(update={"tick": cursor.tick + 1}).model_dump_json(),
    )


def _tags(index: str, request: LoadRequest) -> dict[str, str]:
    return {REQUEST_TAG: f"{index}-{request.id}", ATTEMPT_TAG: str(request.attempt)}


def _run_request(index: str, request: LoadRequest) -> dg.RunRequest:
    tags = _tags(index, request)
    return dg.RunRequest(
        run_key=":".join(tags.values()),
        asset_selection=[asset_key(_SOURCES[name].table) for name in request.files],
        run_config={
            "ops": {step_name(_SOURCES[name].table): {"config": {"files": files}} for name, files in request.files.items()}
        },
        tags=tags,
    )


def _outcome(instance: dg.DagsterInstance, index: str, request: LoadRequest) -> RunOutcome:
    runs = instance.get_runs(dg.RunsFilter(tags=_tags(index, request)))
    if any(_has_loaded(instance, run, request) for run in runs):
        return RunOutcome.SUCCEEDED
    if any(not run.is_finished for run in runs):
        return RunOutcome.RUNNING
    return RunOutcome.FAILED if runs or time.time() - request.asked_at > LOST_AFTER_SECONDS else RunOutcome.RUNNING


def _has_loaded(instance: dg.DagsterInstance, run: dg.DagsterRun, request: LoadRequest) -> bool:
    """Return whether a run has loaded the files, whatever became of the tables that are made of them."""
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return run.is_success
    steps = {step_name(_SOURCES[name].table) for name in request.files}
    done = instance.get_run_step_stats(run.run_id, step_keys=list(steps))
    return steps == {each.step_key for each in done if each.status is StepEventStatus.SUCCESS}


def _skip_message(counts: Counts) -> str:
    parts = [f"No new files; {counts.known} are known."]
    if counts.waiting:
        parts.append(f"{counts.waiting} wait until they have settled, or until other runs have ended.")
    if counts.requests:
        parts.append(f"{counts.requests} requested runs are not finished.")
    if counts.given_up:
        parts.append(
            f"{counts.given_up} files were given up after failed runs: fix the cause, then materialize their bronze "
            "tables, which loads all files that are waiting."
        )
    return " ".join(parts)
