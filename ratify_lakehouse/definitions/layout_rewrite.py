"""The declared tables of the project that have another layout than their declarations, and the rewrite of their files."""

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.interventions import refuse_in_use, report_intervention
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.layout_change import layout_of
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.layout_migration import Migrated, migrate
from ratify_lakehouse.settings import catalog_name


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
