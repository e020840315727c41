"""The table that docs/own-tables.md writes in Python is loaded, appended to once, and passes its checks."""

import re

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.check_definitions import INTACT, REPORTED
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from tests.components.declared_projects import PAGE, Project, causes, failed_checks, metadata
from tests.engines.lakehouse import Lakehouse


@pytest.mark.stack
def test_the_table_of_the_page_is_as_any_other(lake: Lakehouse, project: Project) -> None:
    (text,) = re.findall(r"^```python\n# assets/gold/reports.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    schema = project.schema("gold")
    (project.root / schema).mkdir()
    (project.root / schema / "reports.py").write_text(text.replace('"gold"', f'"{schema}"'))
    tables: DeclaredTables = project.tables
    key = dg.AssetKey(["ratify", schema, "reports"])
    resources = {"spark": lake.spark, "duckdb": lake.another_duckdb()}
    declared = tables.definitions
    given = dg.Definitions(assets=declared.assets, asset_checks=declared.asset_checks, resources=resources)
    (spec,) = [spec for spec in given.resolve_all_asset_specs() if spec.key == key]
    assert spec.automation_condition is not None
    assert spec.freshness_policy is not None
    with dg.DagsterInstance.ephemeral() as instance:
        for added in (1, 0):
            job = given.resolve_implicit_global_asset_job_def()
            done = job.execute_in_process(instance=instance, raise_on_error=False)
            assert done.success, causes(done)
            assert failed_checks(done) == set()
            assert {each.check_name for each in done.get_asset_check_evaluations()} == {INTACT, REPORTED}
            found = metadata(done, "gold", "reports")
            assert (found["rows added"], found["dagster/row_count"]) == (added, 1)
