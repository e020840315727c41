"""`ratify demo` in a project of one's own: what has landed is loaded, every table updated, and all of it shown."""

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.engine_session import Engines, engines
from ratify_lakehouse.cli.job_run import close_dead_runs
from ratify_lakehouse.cli.recorded_runs import (
    RecordedRuns,
    faults_of,
    maintain,
    report,
    show_checks,
    show_tables,
    warnings_of,
)
from ratify_lakehouse.cli.stack_session import stack_for_this_process
from ratify_lakehouse.cli.terminal_output import out
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import declared_tables, folder
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.settings import Settings


def run_project_demo(*, kafka: bool) -> bool:
    """Run it on a stack of its own, with a Kafka broker if wanted; return whether every step passed, and every check whose
    failure is an error."""
    declared = list(declared_tables().declarations.values())
    if not declared:
        out.print(f"{folder()} declares no table yet: README.md has the first steps.", highlight=False)
        return True
    with stack_for_this_process(kafka=kafka), engines() as opened, dagster_instance() as instance:
        runs = RecordedRuns(instance)
        close_dead_runs(instance)
        runs.bring_up_to_date()
        present = [table for table in (*declared, LANDED_FILES) if _exists(opened, table)]
        show_tables(opened, present)
        if missing := [table.table_name for table in declared if table not in present]:
            waiting = (
                "A step failed, so these were not made"
                if runs.failed_steps
                else f"No file has landed for these in {Settings().landing}, or for a table that they read"
            )
            out.print(f"{waiting}: {', '.join(missing)}.", highlight=False)
        maintain(runs, present)
        warnings = warnings_of(runs)
        show_checks(runs, warnings, "warnings")
    return report(faults_of(runs, warnings), "Every step passed.", warnings.values())


def _exists(opened: Engines, table: TableDeclaration) -> bool:
    try:
        opened.catalog.table(table.full_name(opened.catalog.connection.name))
    except TableMissing:
        return False
    return True
