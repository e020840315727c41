"""`ratify delete` and `ratify replace`: rows of a table by a condition, with a look at them before."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.intervention_output import effects, print_consequences
from ratify_lakehouse.cli.terminal_output import Json, out, show, show_json
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.delta.commit_history import Commit
    from ratify_lakehouse.engines.spark.conditional_change import ConditionalChange

Table = Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")]
Where = Annotated[str, typer.Option(help="Condition in Spark SQL. Rows for which it is NULL stay.")]
EveryRow = Annotated[bool, typer.Option("--all", help="Allow a condition that matches all rows.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Reason = Annotated[str, typer.Option(help="Reason, shown in the checks and the history.")]


def delete(
    table: Table,
    where: Where,
    every_row: EveryRow = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Delete the rows that match a condition, in one commit that the checks accept. See docs/repair.md."""
    _rewrite(table, where, None, every_row=every_row, dry_run=dry_run, reason=reason, as_json=as_json)


def replace(
    table: Table,
    where: Where,
    by: Annotated[Path, typer.Option(help="File with a Spark SQL query that returns the new rows.")],
    every_row: EveryRow = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Replace the rows that match a condition by those of a query, in one commit that the checks accept."""
    _rewrite(table, where, by, every_row=every_row, dry_run=dry_run, reason=reason, as_json=as_json)


def _rewrite(table: str, where: str, by: Path | None, *, every_row: bool, dry_run: bool, reason: str, as_json: bool) -> None:
    if not where.strip():
        raise typer.BadParameter("give a condition; `true` with --all means every row.", param_hint="--where")
    if not dry_run and not reason.strip():
        raise typer.BadParameter("give the reason, or use --dry-run.", param_hint="--reason")
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.cli.job_run import close_dead_runs
    from ratify_lakehouse.definitions.interventions import consequences
    from ratify_lakehouse.definitions.table_rewrite import ConditionalRewrite

    with engines() as opened:
        full_name = opened.full_name(table)
        means = consequences(full_name, restored=False)
        rewrite = ConditionalRewrite(full_name, where.strip(), by, every_row)
        log, done = opened.duckdb.log(full_name), None
        if dry_run:
            change = rewrite.planned(opened.spark, log, means)
        else:
            with dagster_instance() as instance:
                close_dead_runs(instance)
                change, done = rewrite.done(opened.spark, log, instance, means, reason.strip())
    if as_json:
        show_json(_described(change, done) | effects(means))
        return
    _print(change, done)
    if change.changes:
        print_consequences(means)


def _described(change: "ConditionalChange", done: "Commit | None") -> dict[str, Any]:
    return {
        "table": change.full_name,
        "where": change.where,
        "at version": change.version,
        "committed in": done.version if done else None,
        "rows": {"before": change.rows, "after": change.rows_after},
        "removed": change.matched,
        "brought": change.new or 0,
        "by key": vars(change.keys) if change.keys else None,
        "some that go": list(change.going),
        "some that come": list(change.coming),
    }


def _print(change: "ConditionalChange", done: "Commit | None") -> None:
    if not change.changes:
        out.print(
            f"No row of {change.full_name} matches {change.where!r}: there is nothing to do.",
            highlight=False,
            soft_wrap=True,
        )
        return
    show("Some of the rows that go", list(change.going), counts=())
    if change.new is not None:
        show("Some of the rows that come", list(change.coming), counts=())
    goes, comes = ("went", "came") if done else ("would go", "would come")
    instead = "" if change.new is None else f", {change.new:,} {comes} in their place"
    in_version = f" in version {done.version}" if done else ""
    lines = [
        f"{counted(change.matched, 'row')} {goes}{instead}{in_version}.",
        f"Rows in the table: {change.rows:,} before, {change.rows_after:,} after.",
    ]
    if keys := change.keys:
        lines.append(f"By key: {keys.gone:,} rows go, {keys.back:,} are new, {keys.other:,} have other values.")
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)
