"""The component `KafkaEvents`: a bronze table of records as they came, from Kafka or another source, declared in YAML."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated

import dagster as dg
from pydantic import BaseModel, Field, StringConstraints

from ratify_lakehouse.components.checks.check_definitions import offsets_check
from ratify_lakehouse.components.personal_columns import MarkedTable, records_name, topic_name, with_marks
from ratify_lakehouse.components.stream.event_stream import RAW
from ratify_lakehouse.components.stream.record_table import RecordTable, record_table
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.components.table_policies import with_freshness
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import LandedCopy
from ratify_lakehouse.ingest.records.record_source import RECORD, DeclaredSource
from ratify_lakehouse.sql.subject_match import KIND, Match

Place = Annotated[str, StringConstraints(pattern=r"^(key|value)(\.[A-Za-z_][A-Za-z0-9_]*)*$")]
"""The key or the value of a record, or a field of its JSON."""


class KafkaEventsParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.KafkaEvents`."""

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
    subjects: dict[str, list[Place]] = Field(
        default={},
        description="Where a record identifies a person or thing, such as {user: [key, value.user.id]}: `ratify erase` "
        "finds its records, and those of erased ones are not read again",
    )
    landed: LandedCopy = Field(
        default=LandedCopy.KEEP,
        description="Files: what `ratify erase` does with those that have records of the subject: keep, delete (the whole "
        "file) or rewrite (without these records)",
    )

    @cached_property
    def table(self) -> RecordTable:
        """The table, and where its records come from.

        Raises:
            UnsafeDeclaration: other engines could not read a table of that name, or a subject has no name.
        """
        self._check_offsets()
        return RecordTable(
            self.declared(
                columns=with_marks(RECORD, lambda name: name in RAW and self._is_published),
                writer=Engine.SPARK,
                operations=frozenset({"STREAMING UPDATE"}),
                subjects={_kind(kind): [_match(place) for place in places] for kind, places in self.subjects.items()},
            ),
            DeclaredSource(**{name: getattr(self, name) for name in DeclaredSource.model_fields}),
            self.landed,
        )

    def _check_offsets(self) -> None:
        for topic in self.starting_offsets:
            if topic not in self.topics:
                raise UnsafeDeclaration(
                    f"{topic!r} is not one of the topics {', '.join(self.topics)}: add it there, or remove it.",
                    *("starting_offsets", topic),
                )
        if self.min_records > self.max_records:
            raise UnsafeDeclaration(
                f"a batch has at most {self.max_records:,} records (`max_records`), so a stream cannot wait for "
                f"{self.min_records:,}: change one of them.",
                "min_records",
            )

    def marked_tables(self) -> Iterable[MarkedTable]:
        """See `DeclaredComponent`: the table, and the records that others may read from its topics."""
        personal = {place.partition(".")[0] for places in self.subjects.values() for place in places}
        topics = list(map(topic_name, self.topics))
        name = f"{self.folder.parent.name}.{self.folder.name}"
        yield MarkedTable(name, personal=personal, reads=topics, unknown=RAW)
        for topic in self.topics:
            yield MarkedTable(records_name(topic), personal=personal)

    @property
    def _is_published(self) -> bool:
        """Return whether its topics have changes of a table with personal data."""
        return any(self.personal.concerned(topic_name(topic)) for topic in self.topics)

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table."""
        return [self.table.declaration]

    def table_defs(self) -> dg.Definitions:
        """Return the table and its checks; the topics, which other tables may read too, are defined once for all tables."""
        return self.definitions(
            [record_table(self.table)],
            [offsets_check(self.table.declaration, self.isolation)],
            with_freshness,
        )


def _match(place: str) -> Match:
    column, _, path = place.partition(".")
    return Match(column, path, binary=True)


def _kind(kind: str) -> str:
    if not re.fullmatch(KIND, kind):
        raise UnsafeDeclaration(f"{kind!r} is not a kind of person or thing: use a name such as user.", "subjects", kind)
    return kind
