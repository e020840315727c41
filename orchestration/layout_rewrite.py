"""The declared tables of the project that have another layout than their declarations, and the rewrite of their files."""

import dagster as dg

from orchestration.interventions import refuse_in_use, report_intervention
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import TableDeclaration
from resources.delta.delta_log import DeltaLog
from resources.delta.layout_change import layout_of
from resources.duckdb.duckdb_engine import DuckDBSession
from resources.duckdb.layout_migration import Migrated, migrate
from resources.settings import catalog_name


def give_layout(
    session: DuckDBSession, catalog: UnityCatalog, log: DeltaLog, instance: dg.DagsterInstance, declared: TableDeclaration
) -> Migrated | None:
    """Give a table its declared layout, and show it on the page of the asset; None if it has it already.

    Raises:
        TableInUse: a run in progress targets the table.
        As `migrate`.
    """
    refuse_in_use(instance, declared)
    before = layout_of(log.refresh())
    done = migrate(session, catalog, log, declared.full_name(catalog_name()), declared.layout)
    if done:
        metadata = {
            "Delta version": done.version,
            "layout": str(declared.layout),
            "layout before": str(before),
            "files": done.new_files,
            "files before": done.files,
        }
        report_intervention(instance, declared, metadata)
    return done
