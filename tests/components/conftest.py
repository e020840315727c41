"""The engines of the session's stack, projects of declared tables, and the schema of the syncs."""

from tests.components.declared_projects import project, shop
from tests.components.declared_syncs import bronze
from tests.resources.lakehouse import engines, lake

__all__ = ["bronze", "engines", "lake", "project", "shop"]
