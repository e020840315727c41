"""Mistakes in declarations of records and of streams: as test_declaration_mistakes.py has those of other tables."""

import importlib

import dagster as dg
import pytest

from ratify_lakehouse.components.yaml_tables import DeclaredTables
from tests.components.test_declaration_mistakes import BRONZE, Mistakes, load, mistakes

__all__ = ["mistakes"]

RECORDS = """type: ratify_lakehouse.KafkaEvents
attributes:
  description: Clicks, as they came
"""
TOPICS = "  topics: [clicks]\n"
EVENTS = """type: ratify_lakehouse.StreamTable
attributes:
  description: Clicks
"""
EVENT_COLUMNS = "  keys: [user]\n  columns:\n    - {name: user, type: string}\n    - {name: at, type: timestamp}\n"
CLICKS = (
    "SELECT topic, partition, offset, timestamp AS kafka_timestamp, key, value, headers,\n"
    "  CAST(key AS STRING) AS user, try_cast(CAST(value AS STRING) AS TIMESTAMP) AS at\n"
    "FROM bronze.clicks\n"
)


@pytest.mark.parametrize(
    ("attributes", "place", "reason"),
    [
        ("", "defs.yaml:2", "topics"),
        ("  topics: []\n", "defs.yaml:4", "at least 1 item"),
        (TOPICS + "  topic: clicks\n", "defs.yaml:5", "topic"),
        (TOPICS + "  starting: now\n", "line 5, starting", "Input should be 'earliest' or 'latest', not 'now'"),
        (TOPICS + "  max_records: 0\n", "defs.yaml:5", "max_records"),
        (TOPICS + "  full_refresh: true\n", "defs.yaml:5", "full_refresh"),
        (TOPICS + "  subjects: {User: [key]}\n", "line 5, subjects", "'User' is not a kind of person or thing"),
        (TOPICS + "  subjects: {user: [headers.id]}\n", "defs.yaml:5", "subjects"),
        (TOPICS + "  landed: shred\n", "line 5, landed", "Input should be 'keep', 'delete' or 'rewrite', not 'shred'"),
    ],
)
def test_in_a_table_of_records(mistakes: Mistakes, attributes: str, place: str, reason: str) -> None:
    mistakes.write("bronze/clicks", RECORDS + attributes)
    error = mistakes.error()
    assert "bronze/clicks/defs.yaml" in error
    assert place in error
    assert reason in error


@pytest.mark.parametrize(
    ("attributes", "sql", "place", "reason"),
    [
        (EVENT_COLUMNS, "", "silver/clicks/defs.yaml, line 2, sql", "silver/clicks/clicks.sql does not exist"),
        ("  keys: [user]\n", CLICKS, "defs.yaml:2", "columns"),
        ("  keys: [user]\n  columns: [{name: user}]\n", CLICKS, "defs.yaml:5", "type"),
        (
            "  keys: [user]\n  columns: [{name: user, type: money}]\n",
            CLICKS,
            "line 5, columns[0]",
            "type 'money' is not one",
        ),
        (
            "  keys: [user]\n  columns: [{name: usr, type: string}]\n",
            CLICKS,
            "line 5, columns[0]",
            "'usr' is a declared column",
        ),
        (
            "  keys: [user]\n  columns:\n    - {name: user, type: string}\n    - {name: offset, type: bigint}\n",
            CLICKS,
            "line 7, columns[1].name",
            "every table of a stream has the record's offset: leave it out",
        ),
        (
            EVENT_COLUMNS.replace("[user]", "[user, x]"),
            CLICKS,
            "line 4, keys[1]",
            "'x' is a key, but not among the declared",
        ),
        (EVENT_COLUMNS + "  lateness: {time: user, allowed: 1 hour}\n", CLICKS, "line 8, lateness.time", "type timestamp"),
        (EVENT_COLUMNS + "  lateness: {time: at, allowed: soon}\n", CLICKS, "defs.yaml:8", "lateness"),
        (EVENT_COLUMNS + "  unique: {latest: [at]}\n", CLICKS, "defs.yaml:8", "unique"),
        (
            EVENT_COLUMNS + "  expectations: [{name: a, expect: usr > ''}]\n",
            CLICKS,
            "line 8, expectations[0].expect",
            "'usr' is",
        ),
        (
            EVENT_COLUMNS + "  lateness: {time: at, allowed: 1 hour}\n  expectations: [{name: on_time, expect: at > 0}]\n",
            CLICKS,
            "line 9, expectations",
            "The name 'on_time' is used twice",
        ),
        (
            EVENT_COLUMNS,
            CLICKS.replace("timestamp AS kafka_timestamp, ", ""),
            "silver/clicks/clicks.sql",
            "the query returns no column 'kafka_timestamp'. Every stream needs topic, partition, offset, kafka_timestamp",
        ),
        (
            EVENT_COLUMNS,
            CLICKS + "WHERE value IS NOT NULL",
            "silver/clicks/clicks.sql",
            "one row for each record, but this one has WHERE",
        ),
        (
            EVENT_COLUMNS,
            CLICKS + "JOIN gold.days USING (day)",
            "clicks.sql",
            "read one table of records, but this one reads bronze.clicks, gold.days",
        ),
        (
            EVENT_COLUMNS,
            CLICKS.replace("bronze.clicks", "bronze.clicks AS a, bronze.clicks AS b"),
            "clicks.sql",
            "this one has JOIN",
        ),
        (EVENT_COLUMNS, CLICKS.replace("CAST(key AS STRING)", "max(key) OVER ()"), "clicks.sql", "this one has OVER"),
        (EVENT_COLUMNS, CLICKS.replace("CAST(key AS STRING)", "explode(headers)"), "clicks.sql", "returns several rows"),
        (EVENT_COLUMNS, CLICKS.replace("CAST(key AS STRING)", "now()"), "clicks.sql", "this one reads the clock"),
        (EVENT_COLUMNS, CLICKS.replace("CAST(key AS STRING)", "timestamp_type"), "clicks.sql", "cannot read timestamp_type"),
        (
            EVENT_COLUMNS,
            CLICKS.replace("bronze.clicks", "bronze.click"),
            "clicks.sql, line 3",
            "Did you mean bronze.clicks? A stream reads",
        ),
        (EVENT_COLUMNS, CLICKS.replace("bronze.clicks", "bronze.orders"), "clicks.sql, line 3", "of the kind KafkaEvents"),
    ],
)
def test_in_a_table_of_a_stream(mistakes: Mistakes, attributes: str, sql: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("bronze/clicks", RECORDS + TOPICS)
    mistakes.write("silver/clicks", EVENTS + attributes, sql)
    error = mistakes.error()
    assert "silver/clicks/" in error
    assert place in error
    assert reason in error


def test_a_stream_without_a_mistake_loads_with_its_topics_and_ledger_once(mistakes: Mistakes) -> None:
    for name in ("clicks", "more"):
        mistakes.write(f"bronze/{name}", RECORDS + TOPICS)
        mistakes.write(f"silver/{name}", EVENTS + EVENT_COLUMNS, CLICKS.replace("bronze.clicks", f"bronze.{name}"))
    tables = DeclaredTables(importlib.import_module(mistakes.root.name))
    load(tables)
    external = [asset for asset in tables.definitions.assets or () if isinstance(asset, dg.AssetSpec)]
    inputs = {"/".join(spec.key.path): sorted("/".join(dep.asset_key.path) for dep in spec.deps) for spec in external}
    assert inputs == {"kafka/clicks": [], "ratify/ops/stream_batches": ["ratify/silver/clicks", "ratify/silver/more"]}
    assert len(external) == 2
    assert {"/".join(key.path[1:]) for key in tables.from_kafka} == {
        *(
            "bronze/clicks",
            "bronze/more",
            "silver/clicks",
            "silver/clicks_quarantine",
            "silver/more",
            "silver/more_quarantine",
        )
    }
