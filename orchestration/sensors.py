"""The sensor that finds new files in the landing zone."""

import dagster as dg

from assets.bronze.assets import MAX_BYTES, MAX_FILES
from assets.bronze.sources import SOURCES
from assets.tables import asset_key
from orchestration.ingestion import Cursor, Outcome, Plan, Request, plan
from resources.errors import LandingUnavailable
from resources.landing import LandingZone

REQUEST_TAG = "ratify/request"
ATTEMPT_TAG = "ratify/attempt"
MAX_REQUESTS_A_TICK = 10

_SOURCES = {source.table.name: source for source in SOURCES}


@dg.sensor(
    target=dg.AssetSelection.assets(*(asset_key(source.table) for source in SOURCES)),
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Finds files that landed or changed, and asks for load batches of bounded size.",
)
def landed_files_sensor(context: dg.SensorEvaluationContext, landing: LandingZone) -> dg.SensorResult | dg.SkipReason:
    """Ask for a run for each load batch of new files, and again for those whose run failed."""
    cursor = Cursor.model_validate_json(context.cursor) if context.cursor else Cursor()
    try:
        listing = {name: landing.files(source.pattern) for name, source in _SOURCES.items()}
    except LandingUnavailable as error:
        # Not "no files": the cursor stays as it is.
        return dg.SkipReason(str(error))
    made = plan(
        cursor,
        listing,
        {key: _outcome(context.instance, key, request) for key, request in cursor.open.items()},
        max_files=MAX_FILES,
        max_bytes=MAX_BYTES,
        max_requests=MAX_REQUESTS_A_TICK,
    )
    runs = [_run_request(key, request) for key, request in made.requests.items()]
    reason = None if runs else dg.SkipReason(_why_nothing(made))
    return dg.SensorResult(run_requests=runs, skip_reason=reason, cursor=made.cursor.model_dump_json())


def _run_request(key: str, request: Request) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{key}:{request.attempt}",
        asset_selection=[asset_key(_SOURCES[name].table) for name in request.files],
        run_config={"ops": {name: {"config": {"files": files}} for name, files in request.files.items()}},
        tags={REQUEST_TAG: key, ATTEMPT_TAG: str(request.attempt)},
    )


def _outcome(instance: dg.DagsterInstance, key: str, request: Request) -> Outcome:
    tags = {REQUEST_TAG: key, ATTEMPT_TAG: str(request.attempt)}
    runs = instance.get_runs(dg.RunsFilter(tags=tags))
    if any(run.status is dg.DagsterRunStatus.SUCCESS for run in runs):
        return Outcome.SUCCEEDED
    if not runs or any(not run.is_finished for run in runs):
        return Outcome.RUNNING
    return Outcome.FAILED


def _why_nothing(made: Plan) -> str:
    said = [f"No new files; {len(made.cursor.seen)} are known."]
    if made.cursor.open:
        said.append(f"{len(made.cursor.open)} requested runs are not finished.")
    if failed := made.cursor.given_up:
        count = sum(request.count for request in failed.values())
        said.append(
            f"{count} files were given up after failed runs: mend the cause, then materialize their bronze tables, "
            "which loads all files that are waiting."
        )
    return " ".join(said)
