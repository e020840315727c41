"""`ratify restore`: a table as it was at an earlier version, with a preview of what is lost and what comes back."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.intervention_output import effects, print_consequences
from ratify_lakehouse.cli.terminal_output import Json, out, show, show_json
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.delta.commit_history import Commit
    from ratify_lakehouse.delta.restore_plan import FileTotals, RestorePlan
    from ratify_lakehouse.engines.spark.key_differences import KeyDifferences

_SHOWN = 20


def restore(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    version: Annotated[int | None, typer.Option(min=0, help="The version to restore.")] = None,
    time: Annotated[
        str, typer.Option(help="Restore the version of this time: 2026-01-31T10:00, in UTC unless it has an offset.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    reason: Annotated[str, typer.Option(help="Reason, shown in the checks and the history.")] = "",
    as_json: Json = False,
) -> None:
    """Restore a table to an earlier version, in one commit that the checks accept. See docs/repair.md."""
    if (version is None) == (not time):
        raise typer.BadParameter("give a version or a time.", param_hint="--version, --time")
    if not dry_run and not reason.strip():
        raise typer.BadParameter("give the reason, or use --dry-run.", param_hint="--reason")
    at = _time(time) if time else None
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.cli.job_run import close_dead_runs
    from ratify_lakehouse.definitions.interventions import consequences, refuse_in_use
    from ratify_lakehouse.definitions.table_restore import restore_table, restored_keys
    from ratify_lakehouse.delta.restore_plan import planned_restore

    with engines() as opened, dagster_instance() as instance:
        full_name = opened.full_name(table)
        plan = planned_restore(opened.duckdb.log(full_name), version, at)
        means = consequences(full_name, restored=True)
        keys = restored_keys(opened.spark, plan, means.declaration)
        done = None
        if not dry_run and plan.changes:
            close_dead_runs(instance)
            refuse_in_use(instance, means.declaration)
            done = restore_table(opened.spark, instance, plan, means, reason.strip())
    if as_json:
        show_json(_described(plan, keys, done) | effects(means))
        return
    _print(plan, keys, done)
    if plan.changes:
        print_consequences(means)


def _time(text: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time such as 2026-01-31T10:00.", param_hint="--time") from None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def _described(plan: "RestorePlan", keys: "KeyDifferences | None", done: "Commit | None") -> dict[str, Any]:
    return {
        "table": plan.full_name,
        "version": plan.version,
        "committed at (UTC)": _at(plan.committed_at),
        "latest": plan.latest,
        "restored in": done.version if done else None,
        "undone": [_row(commit) for commit in plan.undone],
        "removed": vars(plan.removed),
        "added": vars(plan.added),
        "rows": {"before": plan.rows[0], "after": plan.rows[1]},
        "by key": vars(keys) if keys else None,
        "columns and properties": list(plan.metadata),
        "loads that are not loaded again": list(plan.loads),
        "loads that would double": list(plan.withdrawn),
        "append-only": plan.append_only,
        "change feed": plan.change_feed,
    }


def _row(commit: "Commit") -> dict[str, Any]:
    from ratify_lakehouse.delta.commit_author import author_of

    principal, run_id = author_of(commit.record)
    return {
        "version": commit.version,
        "committed at (UTC)": _at(commit.timestamp),
        "engine": commit.engine.value,
        "operation": commit.operation,
        "rows added": "unknown" if commit.rows_added is None else commit.rows_added,
        "by": principal or "",
        "run": run_id or "",
    }


def _print(plan: "RestorePlan", keys: "KeyDifferences | None", done: "Commit | None") -> None:
    at = f"version {plan.version} of {_at(plan.committed_at)} UTC"
    if not plan.changes:
        out.print(f"{plan.full_name} is already as at {at}: there is nothing to restore.", highlight=False, soft_wrap=True)
        return
    show(f"Versions of {plan.full_name} that are undone", [_row(commit) for commit in plan.undone[:_SHOWN]])
    if len(plan.undone) > _SHOWN:
        out.print(f"and {len(plan.undone) - _SHOWN:,} earlier ones.", highlight=False)
    lines = [
        f"Restored to {at} in version {done.version}." if done else f"It would be restored to {at}.",
        f"Removed: {_totals(plan.removed)}. Brought back: {_totals(plan.added)}.",
        "Rows in the table: {} before, {} after.".format(*("unknown" if n is None else f"{n:,}" for n in plan.rows)),
    ]
    if keys:
        lines.append(f"By key: {keys.gone:,} rows go, {keys.back:,} come back, {keys.other:,} have other values.")
    lines += [f"Also, {difference}." for difference in plan.metadata]
    if plan.loads:
        lines.append(
            f"{counted(len(plan.loads), 'load id')} of rows that go stay in the log as loaded, and are not loaded again. "
            f"Their rows can be read from version {plan.latest} as long as it can be restored."
        )
    if plan.withdrawn:
        shown = ", ".join(plan.withdrawn)
        lines.append(f"Do not load these again, because their rows come back and would be duplicated: {shown}.")
    if plan.append_only and (plan.removed.files or plan.removed.rows):
        lines.append("The table only allows appends (delta.appendOnly); a RESTORE removes rows anyway.")
    if plan.changes_rows:
        lines.append(_for_streams(plan))
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)


def _for_streams(plan: "RestorePlan") -> str:
    """What readers do that the project does not know of."""
    feed = "its change data feed reports them" if plan.change_feed else "it has no change data feed"
    if plan.removed.files or plan.removed.rows:
        return f"Streams of its rows end with an error, unless they skip such commits (skipChangeCommits); {feed}."
    return f"Streams of its rows read those that come back once more; {feed}."


def _totals(totals: "FileTotals") -> str:
    rows = "an unknown number of rows" if totals.rows is None else counted(totals.rows, "row")
    return f"{rows}, {counted(totals.files, 'file')} ({totals.size / 1e6:,.1f} MB)"


def _at(time: dt.datetime) -> str:
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
