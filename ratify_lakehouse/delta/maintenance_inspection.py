"""A look at a table: what maintenance it allows, its figures, and what maintenance it needs."""

from contextlib import nullcontext, suppress
from dataclasses import dataclass

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.maintenance_need import MaintenanceNeed, MaintenanceStep, TableMaintenance, maintenance_need
from ratify_lakehouse.delta.maintenance_rules import Maintenance, MaintenanceRules, Manager, Rule, maintenance_rules
from ratify_lakehouse.delta.table_figures import TableFigures, table_figures
from ratify_lakehouse.errors import UnsafeTable


@dataclass(frozen=True)
class Inspection:
    """A table as it is now.

    Attributes:
        rules: What maintenance it allows.
        figures: None where only its manager can read its log.
        need: What maintenance it needs.
    """

    rules: MaintenanceRules
    figures: TableFigures | None
    need: MaintenanceNeed

    @property
    def ours(self) -> bool:
        """Whether the table is ours to maintain: others are by their manager, or by nobody, even where that is allowed."""
        return self.rules.manager in (Manager.EMBEDDED, Manager.OPEN_SOURCE)

    def refused(self, step: MaintenanceStep) -> Rule | None:
        """Return the rule that refuses a step; None if it is allowed."""
        rule = self.rules.rules[Maintenance(step)]
        return None if rule.allowed else rule


def inspect_table(catalog: UnityCatalog, log: DeltaLog, full_name: str, maintenance: TableMaintenance) -> Inspection:
    """Look at a table.

    Raises:
        TableMissing, CatalogUnavailable, CatalogDenied, StorageUnavailable, LogUnreadable.
        CatalogRejected: it is no Delta table.
        UnsafeTable: the log names files outside of the table's folder.
    """
    rules = maintenance_rules(catalog, full_name)
    figures = None
    if rules.manager is not Manager.EXTERNAL:
        # Not every managed table of a workspace has its commits in the catalog.
        with suppress(UnsafeTable) if rules.manager is Manager.DATABRICKS else nullcontext():
            figures = table_figures(catalog, log, full_name, maintenance.target_bytes, maintenance.deleted_ratio)
    return Inspection(rules, figures, maintenance_need(figures, maintenance) if figures else MaintenanceNeed())
