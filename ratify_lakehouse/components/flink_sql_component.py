"""The component `FlinkSql`: a table that a streaming job of Flink appends to, by a query over topics of Kafka."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg
from pydantic import BaseModel, Field

from ratify_lakehouse.components.declaration_places import in_field, named_table
from ratify_lakehouse.components.declared_freshness import DURATION, duration
from ratify_lakehouse.components.flink.flink_asset import flink_table
from ratify_lakehouse.components.flink.flink_checks import SameRows, same_rows_check, unique_keys_check
from ratify_lakehouse.components.flink.flink_table import FlinkTable, JobOptions
from ratify_lakehouse.components.personal_columns import MarkedTable, records_name, topic_name, with_marks
from ratify_lakehouse.components.query_component import query_text
from ratify_lakehouse.components.stream_table_component import StreamedColumn
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.components.table_policies import with_freshness
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.flink.flink_sql import TopicSource, flink_type
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.kafka.kafka_client import Isolation


class EventTime(dg.Model, dg.Resolvable):
    """The event time of a topic's records, the column `time` in the query."""

    expression: str = Field(
        description="Over the columns of a record, in Flink's SQL, of the type TIMESTAMP_LTZ(3); NULL leaves the record out"
    )
    allowed: str = Field(
        pattern=DURATION,
        description="How much later Kafka may receive the record, such as 1 hour; later ones are left out",
    )


class ReadTopic(dg.Model, dg.Resolvable):
    """A topic of Kafka that the query reads: a table with key, value, topic, partition, offset, timestamp and headers."""

    topic: str = Field(description="Kafka's topic")
    name: str = Field(pattern=r"^[A-Za-z_]\w*$", description="Its name in the query")
    time: EventTime | None = Field(default=None, description="The event time, which windows go by")


class SameTable(dg.Model, dg.Resolvable):
    """Another table with the same rows, such as one that Spark computes: a check compares the two."""

    table: str = Field(description="The other table, as schema.table; it has the same columns")
    time: str = Field(description="Column with the time of a row, in both")
    settled: str = Field(
        default="2 hours", pattern=DURATION, description="How long after its time a row of the other table may change"
    )


class FlinkSqlParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.FlinkSql`."""

    topic: str = Field(description="Kafka's topic; more of them are added to defs.yaml")
    description: str = Field(default="Events, as they came", description="What a row is")


class FlinkSqlScaffolder(dg.Scaffolder[FlinkSqlParameters]):
    """Writes the `defs.yaml` of a table of Flink and its query."""

    @classmethod
    def get_scaffold_params(cls) -> type[FlinkSqlParameters]:
        """Return the command's options."""
        return FlinkSqlParameters

    def scaffold(self, request: dg.ScaffoldRequest[FlinkSqlParameters]) -> None:
        """Write them."""
        given = request.params
        declared = {
            "description": given.description,
            "topics": [{"topic": given.topic, "name": "events"}],
            "keys": ["partition", "offset"],
            "columns": [
                {"name": "partition", "type": "int"},
                {"name": "offset", "type": "bigint"},
                {"name": "value", "type": "string"},
            ],
        }
        dg.scaffold_component(request, declared)
        query = request.target_path / f"{request.target_path.name}.sql"
        query.write_text("SELECT `partition`, `offset`, `value`\nFROM events\n")


@dg.scaffold_with(FlinkSqlScaffolder)
class FlinkSql(TableComponent):
    """A table that a streaming job of Flink appends to: the rows of a query over topics of Kafka, each once.

    A run starts the job at its newest state, and stops it with a savepoint when it has read what is there; `ratify stream`
    runs it continuously.
    """

    topics: list[ReadTopic] = Field(min_length=1, description="What the query reads")
    keys: list[str] = Field(min_length=1, description="Columns that identify a row")
    columns: list[StreamedColumn] = Field(min_length=1, description="The columns of the query and of the table")
    sql: str = Field(default="", description="File of the query, beside defs.yaml; by default <table>.sql")
    checkpoint_seconds: float = Field(
        default=10, gt=0, description="Seconds between two checkpoints; each that has rows is a commit"
    )
    parallelism: int = Field(default=1, ge=1, description="Tasks of the job that run side by side")
    state: str = Field(
        default="",
        pattern=f"^$|{DURATION}",
        description="How long unused state of the query is kept, such as 3 hours; empty: forever",
    )
    isolation: Isolation = Field(
        default="read_committed",
        description="Only records of transactions that are committed, or also those of open and aborted ones",
    )
    equal_to: SameTable | None = Field(default=None, description="A table that must have the same rows")

    @property
    def query_file(self) -> Path:
        """The file of the query."""
        return self.folder / (self.sql or f"{self.folder.name}.sql")

    @cached_property
    def table(self) -> FlinkTable:
        """The table, and what its job reads.

        Raises:
            UnsafeDeclaration: attributes contradict each other, or the query's file is missing.
        """
        # Flink's SQL is not followed: each column may have anything of the topics.
        anything = any(map(self.personal.concerned, self._read))
        columns = with_marks(self.declared_columns(self.columns, [each.type for each in self.columns]), lambda _: anything)
        for number, column in enumerate(columns):
            with in_field("columns", number, "type"):
                flink_type(column.type)
        self._check_names([column.name for column in columns])
        declaration = self.declared(
            columns=columns,
            writer=Engine.FLINK,
            # A full refresh deletes all rows first.
            operations=frozenset({"WRITE", "DELETE"}),
            keys=tuple(self.keys),
        )
        options = JobOptions(self.checkpoint_seconds, self.parallelism, duration(self.state).total_seconds())
        return FlinkTable(declaration, [_source(topic) for topic in self.topics], self._query(), options, self.isolation)

    def _check_names(self, columns: Sequence[str]) -> None:
        names = [topic.name for topic in self.topics]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise UnsafeDeclaration(f"Two topics have the name {name} in the query.", "topics", number, "name")
        for number, key in enumerate(self.keys):
            if key not in columns:
                raise UnsafeDeclaration(f"{key} is not a column: choose from {', '.join(columns)}.", "keys", number)
        if self.equal_to and self.equal_to.time not in columns:
            raise UnsafeDeclaration(
                f"{self.equal_to.time} is not a column: choose from {', '.join(columns)}.", "equal_to", "time"
            )
        if self.equal_to:
            named_table(self.equal_to.table, "equal_to", "table")

    def _query(self) -> str:
        query = query_text(self.query_file, "sql")
        if not query:
            where = "/".join(self.query_file.parts[-3:])
            raise UnsafeDeclaration(f"{where} is empty; write one SELECT there.", "sql")
        return query

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`."""
        columns = [Column(column.name, "", pii=column.pii) for column in self.columns]
        personal = [column.name for column in self.columns if column.pii or column.subject]
        name, names = f"{self.folder.parent.name}.{self.folder.name}", [column.name for column in columns]
        yield MarkedTable(name, columns, personal, reads=self._read, unknown=names)

    @property
    def _read(self) -> Sequence[str]:
        return [name(each.topic) for each in self.topics for name in (topic_name, records_name)]

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table."""
        return [self.table.declaration]

    def table_defs(self) -> dg.Definitions:
        """Return the table and its checks; the topics, which other tables may read too, are defined once for all tables."""
        declaration = self.table.declaration
        checks = [unique_keys_check(declaration)]
        if self.equal_to:
            same = SameRows(named_table(self.equal_to.table), self.equal_to.time, self.equal_to.settled)
            checks.append(same_rows_check(declaration, same))
        return self.definitions([flink_table(self.table)], checks, with_freshness)


def _source(topic: ReadTopic) -> TopicSource:
    if topic.time is None:
        return TopicSource(topic.name, topic.topic)
    number, unit = topic.time.allowed.split()
    return TopicSource(topic.name, topic.topic, topic.time.expression, f"INTERVAL '{number}' {unit.rstrip('s').upper()}")
