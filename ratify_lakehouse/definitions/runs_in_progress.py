"""Which tables runs in progress are about to write."""

from collections.abc import Mapping

import dagster as dg

PROCESS_TAG = "ratify/process"
"""Of the runs that a command executes itself: the id of its process."""

_STATUSES = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def targeted_by_runs(instance: dg.DagsterInstance) -> Mapping[dg.AssetKey, str]:
    """Return the assets that runs in progress target, each with the id of such a run.

    A run targets what it planned when it was created, whether as a job's assets or by a selection of them.
    """
    found = dict[dg.AssetKey, str]()
    for run in instance.get_runs(dg.RunsFilter(statuses=_STATUSES)):
        planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
        for record in planned.records:
            if (event := record.event_log_entry.dagster_event) and event.asset_key:
                found[event.asset_key] = run.run_id
    return found
