"""The engines of the session's stack, projects of declared tables, what syncs read and write, and a followed table."""

import pytest

from tests.components.changed_tables import filled, tables
from tests.components.declared_projects import project, shop
from tests.components.declared_syncs import bronze
from tests.components.followed_table import FollowedTable
from tests.components.warehouse_workspace import workspace
from tests.resources.lakehouse import Lakehouse, engines, lake, quick_creation

__all__ = ["bronze", "engines", "filled", "lake", "project", "quick_creation", "shop", "tables", "workspace"]


@pytest.fixture
def followed(lake: Lakehouse) -> FollowedTable:
    return FollowedTable.created(lake)
