"""The engines of the session's stack, projects of declared tables, and what syncs read and write."""

from tests.components.changed_tables import filled, tables
from tests.components.declared_projects import project, shop
from tests.components.declared_syncs import bronze
from tests.components.warehouse_workspace import workspace
from tests.resources.lakehouse import engines, lake

__all__ = ["bronze", "engines", "filled", "lake", "project", "shop", "tables", "workspace"]
