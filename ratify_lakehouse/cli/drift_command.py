"""`ratify drift`: how tables differ from their declarations, and their correction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, out, show
from ratify_lakehouse.errors import RatifyError, TableMissing

if TYPE_CHECKING:
    from ratify_lakehouse.delta.declaration_drift import Difference


def drift(
    table: Annotated[str, typer.Argument(help="schema.table; without one, all declared tables.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Correct what can be corrected in place.")] = False,
    as_json: Json = False,
) -> None:
    """Show how tables differ from their declarations; exit code 1 if one does. See docs/repair.md."""
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.cli.job_run import close_dead_runs
    from ratify_lakehouse.definitions.table_drift import correct, drifting
    from ratify_lakehouse.delta.declaration_drift import differences

    rows, failures, done = list[dict[str, Any]](), list[str](), list[str]()
    with engines() as opened, dagster_instance() as instance:
        if apply:
            close_dead_runs(instance)
        for full_name, declaration in drifting(opened.full_name(table) if table else "").items():
            log = opened.duckdb.log(full_name)
            try:
                found = differences(log.refresh(), declaration)
                if found and apply:
                    corrected = correct(opened.spark, log, instance, declaration)
                    found = corrected.left
                    done += [f"{full_name}: corrected in version {version}." for version in corrected.versions]
                rows += _rows(full_name, found)
            except TableMissing:
                # It is created as it is declared.
                if table:
                    raise
            except RatifyError as error:
                failures.append(f"{full_name}: {error}")
    title = "Differences that are left" if apply else "Differences of tables from their declarations"
    show(title, rows, as_json=as_json)
    for line in () if as_json else done:
        out.print(line, highlight=False, soft_wrap=True)
    for line in failures:
        err.print(line, highlight=False, soft_wrap=True)
    if rows or failures:
        raise typer.Exit(1)


def _rows(full_name: str, found: "Sequence[Difference]") -> list[dict[str, Any]]:
    return [
        {
            "table": full_name,
            "what": f"{each.aspect} {each.name}".rstrip(),
            "declared": each.declared,
            "actual": each.actual,
            "correction": each.correction.value,
            "what to do": each.next_step,
        }
        for each in found
    ]
