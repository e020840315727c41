"""Every pair of attributes that is accepted works: tables of streams, of tenants, of changes, of Kafka and of Flink, topics.

Each case of `KINDS` is materialized, and again after more rows have come. (Syncs are in `test_synced_pairs.py`.)
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.feeds.audit_trail_component import AuditTrail
from ratify_lakehouse.components.feeds.tenant_tables_component import TenantTables
from ratify_lakehouse.components.feeds.topic_feed_component import TopicFeed
from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.kafka_events_component import KafkaEvents
from ratify_lakehouse.components.stream_table_component import StreamTable
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.attribute_pairs import covering
from tests.components.declared_pairs import Case, declared
from tests.components.declared_projects import causes
from tests.components.event_tables import declared_events
from tests.components.followed_table import consumed
from tests.components.test_kind_pairs import KINDS, PairedKind
from tests.engines.lakehouse import Lakehouse
from tests.ingest.record_rows import put_records

pytestmark = [pytest.mark.stack, pytest.mark.long]

_NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def cases_of(kind: type[DeclaredComponent]) -> Any:
    """The cases of a kind that are accepted, each a test."""
    (paired,) = (each for each in KINDS if each.kind is kind)
    cases = enumerate(covering(paired.values, paired.refused))
    return pytest.mark.parametrize(("number", "case"), [(at, case) for at, case in cases if not paired.refused(case)])


class MadePair:
    """The component of a case, in a schema of its own."""

    def __init__(self, lake: Lakehouse, kind: type[DeclaredComponent], place: Path, case: Case, **here: Any) -> None:
        (paired,) = (each for each in KINDS if each.kind is kind)
        self.lake, self.schema, self.name = lake, place.parent.name, place.name
        sql = here.pop("sql", "") or paired.sql
        self.component = declared(kind, place, self._attributes(paired, case) | here, sql)
        self.instance = dg.DagsterInstance.ephemeral()

    @staticmethod
    def _attributes(paired: PairedKind, case: Case) -> dict[str, Any]:
        return {name: value for name, value in paired.attributes(case).items() if value is not None}

    def run(self, **resources: Any) -> None:
        """Materialize it, without the checks that are not its own."""
        found = self.component.build_defs(None)  # pyright: ignore[reportArgumentType] it takes nothing of the context
        engines = {"spark": self.lake.spark, "duckdb": self.lake.duckdb, "catalog": self.lake.catalog}
        defs = dg.Definitions(assets=found.assets, resources=engines | resources)
        job = defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=self.instance, raise_on_error=False)
        assert done.success, causes(done)
        assert done.get_asset_materialization_events()

    def rows(self, columns: str, table: str = "") -> list[tuple[Any, ...]]:
        found = self.lake.quick(f"SELECT {columns} FROM ratify.{self.schema}.{table or self.name}")
        return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def place(lake: Lakehouse, fresh_schema: str, tmp_path: Path) -> Path:
    """The folder of a component, in a schema of its own."""
    lake.catalog.ensure_schemas((fresh_schema, "bronze", "ops"))
    return tmp_path / fresh_schema / "t"


@cases_of(StreamTable)
def test_a_table_of_a_stream(lake: Lakehouse, place: Path, number: int, case: Case) -> None:
    records = declared_events(f"records_{uuid4().hex[:10]}", "events").declaration
    lake.create(records)
    sql = next(each.sql for each in KINDS if each.kind is StreamTable).replace("bronze.a", records.table_name)
    one = MadePair(lake, StreamTable, place, case, sql=sql)
    for keys in ((b"a", b"b"), (b"b", b"c")):
        offset = lake.version(records) * 2
        put_records(lake, records, [(key, b"", "events", 0, offset + at, _NOON, 0, None) for at, key in enumerate(keys)])
        one.run()
    assert one.rows("k") == [("a",), ("b",), ("c",)]


def followed_here(lake: Lakehouse, schema: str) -> str:
    """A table with a feed, whose version 3 is the last, and its name."""
    name = f"ratify.{schema}.a"
    properties = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'none')"
    lake.quick(f"CREATE TABLE {name} (k STRING, kind STRING, region STRING) USING DELTA {properties}")
    lake.quick(f"INSERT INTO {name} VALUES ('a', 'x', 'n'), ('b', 'y', 'o')")
    lake.run(f"UPDATE {name} SET region = 's' WHERE k = 'b'")
    lake.run(f"DELETE FROM {name} WHERE k = 'a'")
    return name


@cases_of(TenantTables)
def test_tables_of_tenants(lake: Lakehouse, place: Path, number: int, case: Case) -> None:
    schema = place.parent.name
    name = followed_here(lake, schema)
    one = MadePair(lake, TenantTables, place, case, table=f"{schema}.a")
    one.run()
    lake.quick(f"INSERT INTO {name} VALUES ('c', 'x', 'n')")
    lake.run(f"UPDATE {name} SET kind = 'v' WHERE k = 'b'")
    one.run()
    assert (one.rows("k, kind", "t_north"), one.rows("k, kind", "t_south")) == ([("c", "x")], [("b", "v")])


@cases_of(AuditTrail)
def test_a_trail(lake: Lakehouse, place: Path, number: int, case: Case) -> None:
    schema = place.parent.name
    name = followed_here(lake, schema)
    one = MadePair(lake, AuditTrail, place, case, table=f"{schema}.a")
    one.run()
    lake.quick(f"INSERT INTO {name} VALUES ('c', 'x', 'n')")
    one.run()
    made = [(1, "insert"), (1, "insert"), (2, "update"), (3, "delete"), (4, "insert")]
    assert one.rows("version, change") == [each for each in made if each[0] >= case["from_version"]]


@cases_of(TopicFeed)
def test_a_topic(lake: Lakehouse, kafka: Kafka, fresh_topic: str, place: Path, number: int, case: Case) -> None:
    schema = place.parent.name
    name = followed_here(lake, schema)
    one = MadePair(lake, TopicFeed, place, case, table=f"{schema}.a", topic=fresh_topic)
    one.run(kafka=kafka)
    lake.quick(f"INSERT INTO {name} VALUES ('c', 'x', 'n')")
    one.run(kafka=kafka)
    found = Counter(value["op"] for _, value in consumed(kafka, fresh_topic))
    assert found == ({"c": 3, "u": 1, "d": 1} if case["from_version"] == 0 else {"c": 1, "d": 1})


def send(kafka: Kafka, topics: Mapping[str, str], *keys: str) -> None:
    """Send a record of each key to each topic."""
    with kafka.producer() as producer:
        for topic in topics.values():
            for key in keys:
                producer.produce(topic, json.dumps({"k": key}).encode(), key.encode())


@cases_of(KafkaEvents)
def test_a_table_of_records(lake: Lakehouse, kafka: Kafka, fresh_topic: str, place: Path, number: int, case: Case) -> None:
    topics = {name: f"{fresh_topic}-{name}" for name in case["topics"]}
    for topic in topics.values():
        kafka.ensure_topic(topic, 1)
    offsets = {topics[name]: given for name, given in case["starting_offsets"].items()}
    folder = place.parent / "files"
    here = {"topics": list(topics.values()), "starting_offsets": offsets, "files": str(folder), "rate": 10}
    one = MadePair(lake, KafkaEvents, place, case, **here)
    folder.mkdir()
    of_kcat = {"topic": "x", "partition": 0, "ts": 1, "tstype": "create", "key": "a", "payload": '{"k": "a"}'}
    counted = list[int]()
    for at in range(2):
        send(kafka, topics, "a", "b")
        lines = [{**of_kcat, "offset": at * 2 + line} if case["format"] == "kcat" else {"k": "a"} for line in range(2)]
        (folder / f"{at}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        one.run(kafka=kafka)
        counted.append(len(one.rows("offset")))
    if case["source"] == "kafka":
        # A stream that begins with the latest record reads what comes after its first run.
        skipped = 2 * len(topics) if case["starting"] == "latest" else 0
        if offsets:
            skipped = 1 + (2 if case["starting"] == "latest" else 0)
        assert counted == [2 * len(topics) - skipped, 4 * len(topics) - skipped]
    else:
        assert counted == ([2, 4] if case["source"] == "files" else [10, 20])


@cases_of(FlinkSql)
def test_a_table_of_flink(lake: Lakehouse, kafka: Kafka, fresh_topic: str, place: Path, number: int, case: Case) -> None:
    topics = {each["topic"]: f"{fresh_topic}-{each['topic']}" for each in case["topics"]}
    for topic in topics.values():
        kafka.ensure_topic(topic, 1)
    here = [{**each, "topic": topics[each["topic"]]} for each in case["topics"]]
    sql = "SELECT `key` AS k, `key` AS kind, `timestamp` AS `at` FROM a"
    one = MadePair(lake, FlinkSql, place, case, topics=here, checkpoint_seconds=1, sql=sql)
    for keys in (("a", "b"), ("c",)):
        send(kafka, topics, *keys)
        one.run(kafka=kafka, flink=Flink(catalog=lake.catalog))
    assert one.rows("k") == [("a",), ("b",), ("c",)]
