"""A look at a table: what maintenance it allows, its figures, and what care it needs."""

from contextlib import nullcontext, suppress
from dataclasses import dataclass

from resources.catalog.unity_catalog import UnityCatalog
from resources.delta.care_need import CareNeed, CareStep, TableCare, care_need
from resources.delta.delta_log import DeltaLog
from resources.delta.maintenance_rules import Maintenance, MaintenanceRules, Manager, Rule, maintenance_rules
from resources.delta.table_figures import TableFigures, table_figures
from resources.errors import UnsafeTable


@dataclass(frozen=True)
class Inspection:
    """A table as it is now.

    Attributes:
        rules: What maintenance it allows.
        figures: None where only its manager can read its log.
        need: What care it needs.
    """

    rules: MaintenanceRules
    figures: TableFigures | None
    need: CareNeed

    @property
    def ours(self) -> bool:
        """Whether the table is ours to care for: others are by their manager, or by nobody, even where that is allowed."""
        return self.rules.manager in (Manager.EMBEDDED, Manager.OPEN_SOURCE)

    def refused(self, step: CareStep) -> Rule | None:
        """Return the rule that refuses a step; None if it is allowed."""
        rule = self.rules.rules[Maintenance(step)]
        return None if rule.allowed else rule


def inspect_table(catalog: UnityCatalog, log: DeltaLog, full_name: str, care: TableCare) -> Inspection:
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
            figures = table_figures(catalog, log, full_name, care.target_bytes, care.deleted_ratio)
    return Inspection(rules, figures, care_need(figures, care) if figures else CareNeed())
