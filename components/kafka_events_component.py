"""The component `KafkaEvents`: a bronze table of records as they came, from Kafka or another source, declared in YAML."""

from collections.abc import Sequence
from functools import cached_property

import dagster as dg
from pydantic import BaseModel, Field

from components.checks.check_definitions import offsets_check
from components.stream.record_table import RecordTable, record_table
from components.table_component import TableComponent, table_definitions
from components.table_policies import with_freshness
from ingest.records.record_source import RECORD, DeclaredSource
from resources.declarations import Engine, TableDeclaration


class KafkaEventsParameters(BaseModel):
    """Options of `dg scaffold defs components.KafkaEvents`."""

    topic: str = Field(description="Kafka's topic; more of them are added to defs.yaml")
    description: str = Field(default="Records of the topic, as they came", description="What a row is")


class KafkaEventsScaffolder(dg.Scaffolder[KafkaEventsParameters]):
    """Writes the `defs.yaml` of a table of records."""

    @classmethod
    def get_scaffold_params(cls) -> type[KafkaEventsParameters]:
        """Return the command's options."""
        return KafkaEventsParameters

    def scaffold(self, request: dg.ScaffoldRequest[KafkaEventsParameters]) -> None:
        """Write it."""
        given = request.params
        dg.scaffold_component(request, {"description": given.description, "topics": [given.topic]})


@dg.scaffold_with(KafkaEventsScaffolder)
class KafkaEvents(TableComponent, DeclaredSource):
    """A table of records as they came: each record is loaded once, by a Spark stream.

    The sensor of the table looks whether records wait and requests the runs; `ratify stream` reads them continuously.
    """

    topics: list[str] = Field(min_length=1, description="Kafka's topics")

    @cached_property
    def table(self) -> RecordTable:
        """The table, and where its records come from.

        Raises:
            UnsafeDeclaration: other engines could not read a table of that name.
        """
        return RecordTable(
            self.declared(columns=RECORD, writer=Engine.SPARK, operations=frozenset({"STREAMING UPDATE"})),
            DeclaredSource(**{name: getattr(self, name) for name in DeclaredSource.model_fields}),
        )

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table."""
        return [self.table.declaration]

    def table_defs(self) -> dg.Definitions:
        """Return the table and its checks; the topics, which other tables may read too, are defined once for all tables."""
        return table_definitions(
            [record_table(self.table)], [offsets_check(self.table.declaration)], with_freshness, self.written
        )
