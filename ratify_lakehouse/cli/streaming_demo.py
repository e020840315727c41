"""The run of `ratify demo --streaming`: tracker events through Kafka, bronze, silver and gold, all accounted for."""

from collections.abc import Mapping
from dataclasses import dataclass

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.engine_session import Engines, engines
from ratify_lakehouse.cli.job_run import close_dead_runs
from ratify_lakehouse.cli.recorded_runs import RecordedRuns, faults_of, report, show_checks, show_tables
from ratify_lakehouse.cli.simulate_command import PARTITIONS, TOPIC, EventKind, Sent, Simulation, send
from ratify_lakehouse.cli.terminal_output import out, show, styled
from ratify_lakehouse.components.expectations.expectation_rules import Unique
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import declared_tables, event_stream, record_tables
from ratify_lakehouse.ingest.records.kafka_records import held_offsets
from ratify_lakehouse.ingest.records.record_source import IN_KAFKA
from ratify_lakehouse.kafka.kafka_client import Kafka

_BAD = 0.01
_USERS = 100
FATES = ("silver", "dropped", "quarantine", "duplicates", "late")
"""What can become of a record; the names of the stream's reconciliation."""
_RAW, _EVENTS = "bronze.tracker_events_raw", "silver.tracker_events"


@dataclass(frozen=True)
class Round:
    """What was sent, and by how much each number of the stream's reconciliation grew."""

    sent: Sent
    grew: Mapping[str, int]

    def faults(self) -> list[str]:
        """Return the numbers that differ from what was sent."""
        kinds = self.sent.kinds
        wanted = {
            "bronze": self.sent.records,
            "records": self.sent.records,
            "silver": self.sent.accepted,
            "dropped": 0,
            "quarantine": kinds[EventKind.MALFORMED] + kinds[EventKind.WRONG_TYPE] + kinds[EventKind.FUTURE],
            "duplicates": kinds[EventKind.DUPLICATE],
            "late": kinds[EventKind.LATE],
        }
        return [
            f"{name}: {self.grew[name]:,} records, but {count:,} of that kind were sent"
            for name, count in wanted.items()
            if self.grew[name] != count
        ]

    def equation(self) -> str:
        """Return the equation that accounts for every record."""
        return f"produced {self.sent.records:,} = " + " + ".join(f"{fate} {self.grew[fate]:,}" for fate in FATES)


def run_streaming_demo(events: int) -> bool:
    """Run the demo; return whether every record is accounted for and every step and check passed."""
    kafka, stream, (raw,) = Kafka(), event_stream(_EVENTS), record_tables(_RAW)
    keys = declared_tables().with_dependents([asset_key(raw.declaration)])
    with engines() as opened, dagster_instance() as instance:
        close_dead_runs(instance)
        for table in (raw.declaration, *stream.tables):
            opened.spark.ensure_table(table)
        runs = RecordedRuns(instance)
        kafka.ensure_topic(TOPIC, PARTITIONS)
        if kafka.offset_range([TOPIC]).behind(held_offsets(opened.spark, raw.declaration)):
            runs.run("events", "events that an earlier demo sent", keys)
        rounds = [_round(kafka, opened, runs, stream, number, events) for number in (1, 2)]
        _show_offsets(kafka, opened, raw.declaration)
        _show_expectations(runs, stream)
        show_tables(opened, [*(declared_tables().declarations[key] for key in keys), STREAM_BATCHES])
        # Some records fail the expectations on purpose.
        by_design = {(stream.name, rule.name) for rule in stream.expectations.all}
        show_checks(runs, by_design)
    for number, each in enumerate(rounds, 1):
        out.print(styled(f"{number}.", "bold", f" {each.equation()}"))
    faults = [*faults_of(runs, by_design), *(fault for each in rounds for fault in each.faults())]
    return report(faults, "Every record is accounted for, and every step passed.")


def _round(kafka: Kafka, opened: Engines, runs: RecordedRuns, stream: EventStream, number: int, events: int) -> Round:
    before = _counts(opened, stream)
    sent = send(kafka, Simulation(events, _USERS, _BAD, seed=number))
    faults = ", ".join(f"{count:,} {kind}" for kind, count in sent.kinds.items())
    sent_so = f", {sent.records / sent.seconds:,.0f}/s: {faults}"
    out.print(styled(f"{number}. Sent {sent.records:,} records", "bold", sent_so))
    runs.run("events", "the events, bronze to gold", declared_tables().with_dependents([asset_key(stream.records)]))
    after = _counts(opened, stream)
    return Round(sent, {name: after[name] - before[name] for name in after})


def _counts(opened: Engines, stream: EventStream) -> dict[str, int]:
    with opened.duckdb.session() as session:
        session.attach()
        return stream.reconciliation.counts(session)


def _show_offsets(kafka: Kafka, opened: Engines, table: TableDeclaration) -> None:
    raw = opened.spark.table(table)
    held = opened.spark.rows(
        opened.spark.sql(
            "SELECT topic, partition, count(*) AS records, min(offset) AS first, max(offset) AS last FROM {raw} "
            f"WHERE {IN_KAFKA} GROUP BY topic, partition ORDER BY topic, partition",
            raw=raw,
        )
    )
    offset_range = kafka.offset_range(sorted({row["topic"] for row in held}))
    behind = [offset_range.latest[row["topic"]][row["partition"]] - row["last"] - 1 for row in held]
    show("Offsets in bronze", [{**row, "behind": left} for row, left in zip(held, behind, strict=True)])


def _show_expectations(runs: RecordedRuns, stream: EventStream) -> None:
    """Print the expectations and how many records of the second round fail them."""
    rows = list[dict[str, object]]()
    for rule in stream.expectations.all:
        found = runs.checks.get((stream.name, rule.name))
        if found:
            validated, failed = (int(str(found.metadata[name].value)) for name in ("rows", "failed"))
            rate = f"{failed / validated:.2%}" if validated else ""
            text = f"one row for each {', '.join(rule.keys)}" if isinstance(rule, Unique) else rule.predicate
            rows.append(
                {"expectation": rule.name, "action": rule.action.value, "failed": failed, "rate": rate, "predicate": text}
            )
    show("Expectations, on the second round's records", rows)
