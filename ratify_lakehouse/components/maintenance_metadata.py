"""How the maintenance of a table is shown: figures that Dagster plots, and rules as a table in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from ratify_lakehouse.delta.maintenance_rules import MaintenanceRules
from ratify_lakehouse.delta.table_figures import TableFigures

SHOWN_FIGURES = {
    "files": "files",
    "MB": "megabytes",
    "small files": "small_files",
    "mergeable files": "mergeable_files",
    "deleted rows": "deleted_rows",
    "versions since checkpoint": "since_checkpoint",
}
"""The figures that are shown, by their names there; each is an attribute of `TableFigures`."""


def shown_figures(figures: TableFigures) -> dict[str, int | float]:
    """Return the figures that are shown, by their names."""
    return {name: getattr(figures, attribute) for name, attribute in SHOWN_FIGURES.items()}


def rules_table(rules: MaintenanceRules) -> dg.MarkdownMetadataValue:
    """Return what maintenance a table allows, by whom it is done or what to do instead, and why."""
    rows = [
        {
            "operation": str(rule.operation),
            "allowed": "yes" if rule.allowed else "no",
            "by, or instead": rule.by,
            "reason": rule.reason,
        }
        for rule in rules.rules.values()
    ]
    return dg.MetadataValue.md(f"Managed by {rules.manager}.\n\n{markdown_table(rows)}")


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same columns each as a table in Markdown; empty if there are none."""
    if not rows:
        return ""
    head = [list(rows[0]), ["---"] * len(rows[0])]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in (*head, *(row.values() for row in rows)))


def _cell(value: Any) -> str:
    shown = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")
