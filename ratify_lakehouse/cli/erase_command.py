"""`ratify erase`: rows of a person or thing, found and deleted in all layers, with a report of what remains until when."""

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, out, show, show_json

if TYPE_CHECKING:
    from ratify_lakehouse.definitions.subject_survey import Subject

_WILDCARDS = {"*", "%", "?", "_", ".*"}


def erase(
    subject: Annotated[
        str, typer.Option(help="KIND=VALUE, such as user=4711; KIND=- reads the value from the standard input.")
    ],
    plan: Annotated[bool, typer.Option("--plan", help="Only show what has rows of it, and what would remain.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Delete them, and remove files as far as tables allow it.")] = False,
    all_rows: Annotated[bool, typer.Option("--all-rows", help="Allow a table to lose all its rows.")] = False,
    leave: Annotated[
        list[str] | None,
        typer.Option(help="Accept this table, although it keeps rows with the value or cannot be searched."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, shown in the checks and the history.")] = "",
    as_json: Json = False,
) -> None:
    """Erase a person or thing from all tables, and see what remains until when. See docs/erasure.md.

    The exit code of --apply is 1 if rows of it are left, or may be, in a table or file that no --leave names.
    """
    if plan == apply:
        raise typer.BadParameter("give either --plan or --apply.", param_hint="--plan, --apply")
    if apply and not reason.strip():
        raise typer.BadParameter("give the reason.", param_hint="--reason")
    kind, value = _parts(subject)
    if value in reason:
        raise typer.BadParameter("it contains the subject's value, and would stay in the history.", param_hint="--reason")
    from ratify_lakehouse.definitions.subject_survey import Subject

    given = Subject(kind, value)
    report, path = _applied(given, reason.strip(), all_rows=all_rows) if apply else (_planned(given), "")
    if as_json:
        show_json(report | ({"report": path} if path else {}))
    else:
        _print(report, path)
    if apply and (left := not_left(report["not erased"], leave or ())):
        err.print(f"Not erased: {', '.join(left)}. `remains` says why, and what to do.", highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def not_left(places: Sequence[str], leave: Sequence[str]) -> list[str]:
    """Return the places that are not to be left, where a table is given as schema.table or catalog.schema.table."""
    given = {name.casefold() for name in leave}
    return [place for place in places if not {place.casefold(), place.casefold().partition(".")[2]} & given]


def _parts(subject: str) -> tuple[str, str]:
    from ratify_lakehouse.sql.subject_match import KIND

    kind, _, value = subject.partition("=")
    if value == "-":
        value = typer.get_text_stream("stdin").readline().rstrip("\n")
    if not re.fullmatch(KIND, kind):
        raise typer.BadParameter("give KIND=VALUE, such as user=4711.", param_hint="--subject")
    if not value.strip() or value.strip() in _WILDCARDS:
        raise typer.BadParameter("give the exact value of one subject.", param_hint="--subject")
    return kind, value


def _planned(subject: "Subject") -> dict[str, Any]:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.definitions.erasure_report import planned
    from ratify_lakehouse.definitions.project_tables import declared_tables
    from ratify_lakehouse.definitions.subject_survey import SubjectSurvey
    from ratify_lakehouse.definitions.subject_traces import with_traces
    from ratify_lakehouse.landing.landing_zone import LandingZone

    with engines() as opened, dagster_instance() as instance:
        survey = SubjectSurvey(opened.catalog, opened.duckdb, declared_tables(), LandingZone(), UnityCatalog(admin=True))
        plan = with_traces(survey.plan(subject), instance, opened.duckdb.home, subject.value)
        return planned(plan, time.time())


def _applied(subject: "Subject", reason: str, *, all_rows: bool) -> tuple[dict[str, Any], str]:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.cli.job_run import close_dead_runs
    from ratify_lakehouse.definitions.erasure_report import done, write_report
    from ratify_lakehouse.definitions.project_tables import declared_tables
    from ratify_lakehouse.definitions.subject_erasure import SubjectErasure
    from ratify_lakehouse.definitions.subject_survey import SubjectSurvey
    from ratify_lakehouse.landing.landing_zone import LandingZone

    with engines() as opened, dagster_instance() as instance:
        close_dead_runs(instance)
        survey = SubjectSurvey(opened.catalog, opened.duckdb, declared_tables(), LandingZone(), UnityCatalog(admin=True))
        erased = SubjectErasure(subject, survey, opened.spark, instance, reason, all_rows).run()
        now = time.time()
        report = done(erased, reason, now)
        return report, str(write_report(report, opened.duckdb.home, now))


def _print(report: dict[str, Any], path: str) -> None:
    named = f"{report['subject']['kind']} {report['subject']['hash']}".strip()
    if "gone" in report:
        show(f"Gone of {named}", report["gone"], counts=())
    show(f"Tables in which a {report['subject']['kind']} is found", report["tables"], counts=())
    if report["landed files"]:
        show("Landed files with rows of it", report["landed files"])
    show("What remains" if path else "What would remain", report["remains"])
    for table in report["cannot be found by subject"]:
        out.print(f"{table}: personal data that cannot be found by subject.", highlight=False)
    if path:
        out.print(f"Report: {path}", highlight=False, soft_wrap=True)
