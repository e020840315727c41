"""The engines of the session's stack, projects of declared tables, what syncs read and write, and a followed table."""

import dagster as dg
import pytest

from ratify_lakehouse.components import table_asset
from tests.components.changed_tables import filled, tables
from tests.components.declared_projects import project, shop
from tests.components.declared_syncs import bronze
from tests.components.followed_table import FollowedTable
from tests.components.sparkless import sparkless
from tests.components.warehouse_workspace import workspace
from tests.engines.lakehouse import Lakehouse, engines, lake, quick_creation

__all__ = ["bronze", "engines", "filled", "lake", "project", "quick_creation", "shop", "sparkless", "tables", "workspace"]


@pytest.fixture
def followed(lake: Lakehouse) -> FollowedTable:
    return FollowedTable.created(lake)


@pytest.fixture
def no_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass of Spark read no rows to show: from a table that takes it as long as computing them.

    Take this where nothing looks at them. `test_table_preview.py` and `test_yaml_tables.py` do; the random tables of
    `test_changes_differential.py` have them.
    """
    monkeypatch.setattr(table_asset, "preview_by_spark", lambda *_: dg.MetadataValue.table([], dg.TableSchema([])))
