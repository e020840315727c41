"""The runs of `ratify run` and `ratify check`, through Dagster."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.job_run import close_dead_runs
from ratify_lakehouse.cli.recorded_runs import RecordedRuns, faults_of, warnings_of
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.definitions.project_definitions import ANY_JOB, code_location
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.sensors.whole_table_sensor import partition_range, whole_run_tags
from ratify_lakehouse.definitions.table_selections import IN_FULL
from ratify_lakehouse.errors import NotConfigured

_JOBS = ("ingest", "medallion", "events")
"""Jobs of which the first that has all of the tables is the run's."""
_NUMBERS = {"dagster/row_count": "rows", "rows added": "rows added", "Delta version": "version", "seconds": "seconds"}


@dataclass(frozen=True)
class TableRun:
    """Result of a run.

    Attributes:
        tables: A row for each table, or each check.
        faults: What failed.
        warnings: Checks that failed, and only warn.
    """

    tables: list[dict[str, Any]]
    faults: list[str]
    warnings: list[str]


def run_tables(
    names: Sequence[str],
    *,
    upstream: bool = False,
    downstream: bool = False,
    full: bool = False,
    files: Sequence[str] = (),
) -> TableRun:
    """Materialize tables and syncs in one run, those with partitions of partitions in runs of their own after it.

    Args:
        names: Tables, as schema.table, and syncs, as syncs.name.
        upstream: Also everything that they are made of.
        downstream: Also everything that is made of them.
        full: All rows of the named tables are computed.
        files: Landed files that the named tables load; none: all that wait.

    Raises:
        NotConfigured: there is no such table or sync, or one of them cannot compute all rows.
    """
    graph = code_location().defs.resolve_asset_graph()
    named = _keys(names)
    selection = chosen = dg.AssetSelection.assets(*named)
    if upstream:
        chosen = chosen | selection.upstream()
    if downstream:
        chosen = chosen | selection.downstream()
    # A table with its quarantine: one step writes both.
    keys = {each for key in chosen.materializable().resolve(graph) for each in graph.get(key).assets_def.keys}
    ordered = [key for key in graph.toposorted_asset_keys if key in keys]
    tags = {key: _tags(key, full=full and key in named) for key in ordered}
    config = {"ops": dict(_refreshed(key) for key in named if not tags[key])} if full else {}
    if files:
        config = {"ops": {graph.get(key).assets_def.node_def.name: {"config": {"files": [*files]}} for key in named}}
    with dagster_instance() as instance:
        close_dead_runs(instance)
        runs = RecordedRuns(instance)
        if together := [key for key in ordered if not tags[key]]:
            runs.run(_job_of(together), ", ".join(names), together, dg.RunRequest(run_config=config))
        for key in ordered:
            if tags[key] and not runs.failed_steps:
                runs.run(ANY_JOB, _name(key), [key], dg.RunRequest(tags=tags[key]))
    return _table_run(runs, [row for key in ordered if (row := _row(runs, key))])


def check_tables(names: Sequence[str], *, full: bool = False) -> TableRun:
    """Execute the checks of tables and syncs that are not part of their own runs.

    Args:
        names: Tables, as schema.table, and syncs, as syncs.name.
        full: Whole tables are compared, not only what is new since the checks passed.

    Raises:
        NotConfigured: there is no such table or sync, or it has no such check.
    """
    keys = _keys(names)
    checks = [check for check in declared_tables().checks if check.asset_key in keys]
    if without := [name for name, key in zip(names, keys, strict=True) if all(key != each.asset_key for each in checks)]:
        raise NotConfigured(
            f"{without[0]} has no checks other than its expectations, which `ratify run {without[0]}` evaluates."
        )
    with dagster_instance() as instance:
        runs = RecordedRuns(instance)
        runs.run(ANY_JOB, ", ".join(names), (), dg.RunRequest(tags=IN_FULL if full else {}), checks=checks)
    return _table_run(
        runs,
        [
            {"table": table, "check": name, "passed": "yes" if found.passed else "no", "found": found.description or ""}
            for (table, name), found in runs.checks.items()
        ],
    )


def _keys(names: Sequence[str]) -> list[dg.AssetKey]:
    known = {_name(key): key for key in code_location().defs.resolve_asset_graph().materializable_asset_keys}
    if unknown := [name for name in names if name not in known]:
        raise NotConfigured(f"There is no table or sync called {unknown[0]}. Choose one of: {', '.join(sorted(known))}.")
    return [known[name] for name in names]


def _name(key: dg.AssetKey) -> str:
    return ".".join(key.path[-2:])


def _job_of(keys: Collection[dg.AssetKey]) -> str:
    """The job whose timeline shows a run: the first of the project's that has all of its tables."""
    repository = code_location().defs.get_repository_def()
    jobs = (repository.get_job(name) for name in _JOBS if repository.has_job(name))
    return next((job.name for job in jobs if set(keys) <= set(job.asset_layer.executable_asset_keys)), ANY_JOB)


def _tags(key: dg.AssetKey, *, full: bool) -> dict[str, str]:
    """The tags of a table with partitions that is run by itself: of all of its partitions, or of stale ones."""
    table = declared_tables().components.get(_name(key))
    if full and isinstance(table, SqlTable) and table.partitioned and (every := table.partitioned.keys):
        return partition_range(every)
    return dict(whole_run_tags(key))


def _refreshed(key: dg.AssetKey) -> tuple[str, dict[str, Any]]:
    """The step of a table, and the configuration by which it computes all rows; a table of the strategy full needs none."""
    table = declared_tables().components.get(_name(key))
    node = code_location().defs.resolve_asset_graph().get(key).assets_def.node_def
    if isinstance(table, SqlTable) and table.strategy == "full":
        return node.name, {}
    if "full_refresh" not in getattr(getattr(node, "config_schema", None) and node.config_schema.config_type, "fields", {}):
        raise NotConfigured(f"{_name(key)} cannot recompute all its rows: leave --full out.")
    return node.name, {"config": {"full_refresh": True}}


def _row(runs: RecordedRuns, key: dg.AssetKey) -> dict[str, Any]:
    """Return the numbers of a table that a run made; empty if it did not come to it."""
    made = runs.made.get(key)
    if made is None:
        return {}
    checks = [check for (table, _), check in runs.checks.items() if table == _name(key)]
    shown = {name: getattr(made.metadata.get(each), "value", "") for each, name in _NUMBERS.items()}
    return {"table": _name(key), **shown, "checks passed": f"{sum(each.passed for each in checks)} of {len(checks)}"}


def _table_run(runs: RecordedRuns, rows: list[dict[str, Any]]) -> TableRun:
    warnings = warnings_of(runs)
    return TableRun(rows, faults_of(runs, warnings), list(warnings.values()))
