"""The component `StreamTable`: a table of the events in records, which a stream keeps up to date, declared in YAML."""

from collections.abc import Sequence
from functools import cached_property

import dagster as dg
from pydantic import BaseModel, Field

from ratify_lakehouse.components.checks.check_definitions import reconciliation_check
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.components.declared_freshness import DURATION
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.personal_columns import with_marks
from ratify_lakehouse.components.query_component import QueryComponent
from ratify_lakehouse.components.stream.event_stream import CORRECTED, GIVEN, IDENTITY, LATEST, RAW, EventStream
from ratify_lakehouse.components.stream.stream_materialization import stream_table
from ratify_lakehouse.components.table_component import TableColumn
from ratify_lakehouse.components.table_policies import with_policies
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import InvalidDeclaration, UnsafeDeclaration
from ratify_lakehouse.ingest.records.record_source import RECORD
from ratify_lakehouse.sql.record_query import check_by_record

ON_TIME = "on_time"
"""Name of the expectation that late records fail."""
_EXAMPLE = "to_json(struct(topic, partition, offset, make_valid_utf8(CAST(substring(value, 1, 200) AS STRING)) AS value))"
_POSITION = (
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("kafka_timestamp", "timestamp", "Kafka's timestamp of the record"),
)


class StreamedColumn(TableColumn):
    """A column of the query that the table has."""

    type: str = Field(description="Spark SQL type that the query must return, such as timestamp or bigint")


class Lateness(dg.Model, dg.Resolvable):
    """Which records are late: they are dropped, and counted as late."""

    time: str = Field(description="Column with the event's own time")
    allowed: str = Field(
        pattern=DURATION,
        description="How much later Kafka may receive the record, such as 1 hour",
    )


class StreamTableParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.StreamTable`."""

    source: str = Field(description="Table of records that the query reads, such as bronze.events_raw")
    key: str = Field(description="Column of the record's key, which identifies a row; more keys are added to defs.yaml")
    description: str = Field(default="Events, the last record for each key", description="What a row is")


class StreamTableScaffolder(dg.Scaffolder[StreamTableParameters]):
    """Writes the `defs.yaml` of a table of events and its query."""

    @classmethod
    def get_scaffold_params(cls) -> type[StreamTableParameters]:
        """Return the command's options."""
        return StreamTableParameters

    def scaffold(self, request: dg.ScaffoldRequest[StreamTableParameters]) -> None:
        """Write them."""
        given = request.params
        declared = {
            "description": given.description,
            "keys": [given.key],
            "columns": [{"name": given.key, "type": "string"}],
            "expectations": [{"name": "key_is_given", "expect": f"{given.key} <> ''", "action": "quarantine"}],
        }
        dg.scaffold_component(request, declared)
        query = request.target_path / f"{request.target_path.name}.sql"
        query.write_text(
            "SELECT\n  topic, partition, offset, `timestamp` AS kafka_timestamp, key, value, headers,\n"
            f"  try_validate_utf8(CAST(key AS STRING)) AS {given.key}\nFROM {given.source}\n"
        )


@dg.scaffold_with(StreamTableScaffolder)
class StreamTable(QueryComponent):
    """A table of events: the rows of a query over a table of records, validated batch by batch as the records come.

    Of several records with one key, the last by Kafka's timestamp is in the table. Records that fail an expectation are
    dropped or wait in `<table>_quarantine` for a correction; every record is accounted for.
    """

    columns: list[StreamedColumn] = Field(
        min_length=1, description="The table's columns; other columns of the query are only for expectations"
    )
    lateness: Lateness | None = Field(default=None, description="Which records are too late; by default none are")

    @cached_property
    def stream(self) -> EventStream:
        """The stream.

        Raises:
            UnsafeDeclaration: the attributes contradict each other or the query.
            InvalidDeclaration: the query does not give one row for each record of one table.
        """
        where = "/".join(self.query_file.parts[-3:])
        check_by_record(self.query, where)
        self._check_columns(where)
        keys = tuple(self.keys)
        is_personal = self.personal.of_query(self.query, lambda _: [column.name for column in RECORD])
        columns = with_marks(self.declared_columns(self.columns, [each.type for each in self.columns]), is_personal)
        table = self.declared(
            columns=(*columns, *_POSITION),
            writer=Engine.SPARK,
            # A rebuild deletes all rows first.
            operations=frozenset({"MERGE", "DELETE"}),
            keys=keys,
        )
        (source,) = self.query.inputs
        sent = with_marks(RECORD, lambda name: name in RAW and is_personal(name))
        records = TableDeclaration(
            source.schema, source.table, sent, "Records as they came", Engine.SPARK, frozenset({"STREAMING UPDATE"})
        )
        return EventStream(
            records,
            table,
            self.query,
            Expectations(
                rules=(*self.rules(), *self._on_time()),
                identity=IDENTITY,
                example=SPARK.json_of(table.shown_columns) if table.personal or records.personal else _EXAMPLE,
                personal=table.personal,
                unique=Unique("one_row_for_each_key", keys, LATEST),
                raw=RAW,
            ),
            ON_TIME if self.lateness else "",
        )

    def _on_time(self) -> tuple[Expectation, ...]:
        if self.lateness is None:
            return ()
        time, allowed = SPARK.identifier(self.lateness.time), self.lateness.allowed
        predicate = f"{time} IS NULL OR {time} >= kafka_timestamp - INTERVAL {allowed}"
        return (
            Expectation(
                ON_TIME, predicate, Action.DROP, f"Kafka received it at most {allowed} after its {self.lateness.time}"
            ),
        )

    def _check_columns(self, where: str) -> None:
        found = self.query.columns
        known = {each.name: each.type for each in self.columns}
        if "*" not in found:
            if missing := [name for name in GIVEN if name not in found]:
                raise InvalidDeclaration(
                    f"{where}: the query returns no column {missing[0]!r}. Every stream needs {', '.join(GIVEN)} of the "
                    "record, unchanged; kafka_timestamp is its `timestamp`."
                )
            for number, name in enumerate(known):
                if name not in found:
                    raise UnsafeDeclaration(
                        f"{name!r} is a declared column, but not a column of the query, which returns {', '.join(found)}.",
                        *("columns", number),
                    )
        for number, name in enumerate(known):
            if name.lower() in GIVEN:
                raise UnsafeDeclaration(
                    f"every table of a stream has the record's {name}: leave it out.", "columns", number, "name"
                )
        for number, name in enumerate(self.keys):
            if name not in known:
                raise UnsafeDeclaration(
                    f"{name!r} is a key, but not among the declared columns {', '.join(known)}.", "keys", number
                )
        if self.lateness and known.get(self.lateness.time, "").lower() != "timestamp":
            with in_field("lateness", "time"):
                raise UnsafeDeclaration(f"{self.lateness.time!r} is not a declared column of type timestamp.")

    @property
    def rewrites(self) -> str:
        """See `TableComponent`."""
        return "A stream updates rows by their keys, and deletes those that leave the table"

    @property
    def _marked(self) -> Sequence[TableColumn]:
        return self.columns

    @property
    def _quarantined(self) -> tuple[Sequence[str], Sequence[str]]:
        return (*RAW, CORRECTED), (*IDENTITY, "timestamp", "reasons", "quarantined_at", "replayed_at")

    @property
    def written(self) -> Sequence[TableDeclaration]:
        """The table and its quarantine."""
        return self.stream.written

    def table_defs(self) -> dg.Definitions:
        """Return the table, its quarantine and their checks; the ledger is defined once for all streams."""
        reconciled = reconciliation_check(
            self.stream.reconciliation,
            "records_reconciled",
            records_reconciled,
            "Records read = silver + dropped + quarantined + duplicates + late, by the tables and the ledger.",
        )
        return self.definitions([stream_table(self.stream)], [reconciled], with_policies)
