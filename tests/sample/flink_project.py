"""A project with one table of Flink on a topic of its own: its runs, and what they store and report."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from ratify_lakehouse.components.flink.flink_table import FlinkTable
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.test_yaml_tables import Project
from tests.engines.lakehouse import Lakehouse


@dataclass
class FlinkProject:
    """The table, in gold, and its topic."""

    lake: Lakehouse
    project: Project
    kafka: Kafka
    topic: str
    name: str = "records"
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    @property
    def table(self) -> FlinkTable:
        (table,) = self.project.tables.flink_tables
        return table

    @property
    def full_name(self) -> str:
        return self.lake.full(self.table.declaration)

    def job(self, **config: Any) -> dg.ExecuteInProcessResult:
        engines = {"spark": self.lake.spark, "duckdb": self.lake.duckdb, "kafka": self.kafka}
        resources = {**engines, "flink": Flink(catalog=self.lake.catalog), "catalog": self.lake.catalog}
        defs = dg.Definitions.merge(self.project.tables.definitions, dg.Definitions(resources=resources))
        ops = {"ops": {f"{self.project.schema('gold')}__{self.name}": {"config": config}}} if config else None
        return defs.resolve_implicit_global_asset_job_def().execute_in_process(
            run_config=ops, instance=self.instance, raise_on_error=False
        )

    def materialized(self, **config: Any) -> dict[str, Any]:
        """A run whose checks pass; what it reports, and by the names of its checks what they do."""
        done = self.job(**config)
        assert done.success, causes(done)
        found = done.get_asset_check_evaluations()
        assert not [check for check in found if not check.passed]
        (made,) = done.get_asset_materialization_events()
        checks = {each.check_name: {name: value.value for name, value in each.metadata.items()} for each in found}
        return {**{name: value.value for name, value in made.materialization.metadata.items()}, **checks}

    def failure(self) -> str:
        done = self.job()
        assert not done.success
        return causes(done)

    def failed_checks(self) -> set[str]:
        return {check.check_name for check in self.job().get_asset_check_evaluations() if not check.passed}


def causes(done: dg.ExecuteInProcessResult) -> str:
    """What a failed run is shown with: the errors of its steps and their causes."""
    found = list[str]()
    for event in done.all_events:
        error = event.step_failure_data.error if event.is_step_failure else None
        while error:
            found.append(error.message)
            error = error.cause
    return "\n".join(found)
