"""Changes that somebody makes to the rows of a table by hand: when they are refused, and what they mean for the project."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.rewrite_effects import own_effect, reader_effect
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.runs_in_progress import targeted_by_runs
from ratify_lakehouse.errors import TableInUse
from ratify_lakehouse.settings import catalog_name


@dataclass(frozen=True)
class Consequences:
    """What a change of a table means for the project.

    Attributes:
        declaration: The table; None if the project declares no such table.
        own: What its next run does.
        readers: What reads it, each with what its next run does.
        downstream: The tables that are computed from it, directly or not, as schema.table.
    """

    declaration: TableDeclaration | None
    own: str
    readers: Mapping[str, str]
    downstream: tuple[str, ...]


def consequences(full_name: str, *, restored: bool) -> Consequences:
    """Return what it means that somebody changes rows of a table.

    Args:
        full_name: As catalog.schema.table.
        restored: Whether they are changed by a RESTORE.
    """
    catalog, _, table = full_name.partition(".")
    tables = declared_tables()
    found = tables.written_by(table) if catalog == catalog_name() else None
    if found is None:
        return Consequences(None, "", {}, ())
    component, declaration = found
    readers = {_name(reader): reader_effect(reader, table) for reader in tables.followers(table)}
    downstream = [".".join(key.path[-2:]) for key in tables.with_dependents([asset_key(declaration)])[1:]]
    return Consequences(declaration, own_effect(component, restored=restored), readers, tuple(downstream))


def refuse_in_use(instance: dg.DagsterInstance, declaration: TableDeclaration | None) -> None:
    """Refuse to change a table that a run in progress targets.

    Raises:
        TableInUse: there is such a run.
    """
    run_id = targeted_by_runs(instance).get(asset_key(declaration)) if declaration else None
    if declaration and run_id:
        raise TableInUse(
            f"Run {run_id} is in progress and targets {declaration.table_name}, which would change under it: wait until "
            "it ends, or cancel it, and try again."
        )


def report_intervention(
    instance: dg.DagsterInstance, declaration: TableDeclaration | None, metadata: Mapping[str, Any]
) -> None:
    """Show a change on the page of the table's asset, as an observation of it."""
    if declaration:
        instance.report_runless_asset_event(dg.AssetObservation(asset_key(declaration), metadata=metadata))


def _name(reader: DeclaredComponent) -> str:
    return f"{reader.folder.parent.name}.{reader.folder.name}"
