"""A table with a change data feed, and the tables of a project that follow it."""

from typing import Any

import dagster as dg

from ratify_lakehouse.declarations import TableDeclaration
from tests.components.declared_projects import Project, causes
from tests.engines.lakehouse import Lakehouse


class Followers:
    """A table with a feed, and the project's tables that follow it."""

    def __init__(self, lake: Lakehouse, project: Project, table: TableDeclaration, instance: dg.DagsterInstance) -> None:
        self.lake, self.project, self.table, self.instance = lake, project, table, instance

    def declare(self, kind: str, name: str, more: str = "") -> None:
        attributes = f"  description: D\n  table: {self.table.table_name}\n  keys: [id]\n  external: true\n{more}"
        self.project.write("gold", name, f"type: ratify_lakehouse.{kind}\nattributes:\n{attributes}")

    @property
    def resources(self) -> dict[str, Any]:
        return {"spark": self.lake.spark, "duckdb": self.lake.duckdb}

    def attempted(self) -> dg.ExecuteInProcessResult:
        """A run that may fail."""
        assets = self.project.tables.definitions.assets
        job = dg.Definitions(assets=assets, resources=self.resources).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def run(self) -> dg.ExecuteInProcessResult:
        done = self.attempted()
        assert done.success, causes(done)
        return done

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        found = self.lake.quick(f"SELECT * FROM {self.project.schema('gold')}.{name}")
        return sorted(tuple(row.values()) for row in found)

    def version(self, name: str) -> int:
        return self.lake.catalog.version(f"ratify.{self.project.schema('gold')}.{name}")
