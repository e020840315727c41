"""A table with a change data feed, and the messages that a topic has to have of it: a model in plain Python."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ratify_lakehouse.components.feeds.topic_feed import PublishedTopic
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.sql.spark_sql import literal
from tests.engines.lakehouse import Lakehouse, append, pairs

Change = tuple[str, str | None, str | None, int]
"""What a message says: op, `v` before and after (`...` where there is no row), and the version."""

NO_ROW = "..."
_TEXTS = (None, "", "a", "b", 'q"uote', "back\\slash", "ü{}$", "line\nend")


def sql_text(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


@dataclass
class FollowedTable:
    """A table of `id` and `v`, its rows, and the messages to be expected, by the id and in their order.

    Attributes:
        lake: The lakehouse.
        table: The table.
        chance: Of what happens.
        by_spark: Spark updates and deletes rows; otherwise our own commits do, where its way to write is not the subject.
    """

    lake: Lakehouse
    table: TableDeclaration
    chance: random.Random
    by_spark: bool = True

    def __post_init__(self) -> None:
        self.name = self.lake.full(self.table)
        self.rows = dict[int, str | None]()
        self.expected = defaultdict[int, list[Change]](list)
        self.loads = 0

    @classmethod
    def created(cls, lake: Lakehouse, seed: int = 0) -> "FollowedTable":
        table = pairs(properties={"delta.enableChangeDataFeed": "true"})
        lake.create(table)
        return cls(lake, table, random.Random(seed))  # noqa: S311

    def becomes(self, rows: Mapping[int, str | None], touched: Sequence[int]) -> None:
        """The last statement has changed these rows, and the table has those now."""
        version = self.lake.version(self.table)
        for id_ in touched:
            before, after = (each.get(id_, NO_ROW) for each in (self.rows, rows))
            op = "c" if before == NO_ROW else "d" if after == NO_ROW else "u"
            self.expected[id_].append((op, before, after, version))
        self.rows = dict(rows)

    def insert(self, rows: Mapping[int, str | None]) -> None:
        values = ", ".join(f"({id_}, {sql_text(v)})" for id_, v in rows.items())
        self.lake.quick(f"INSERT INTO {self.name} VALUES {values}")
        self.becomes({**self.rows, **rows}, list(rows))

    def load(self, rows: Mapping[int, str | None]) -> None:
        """By DuckDB."""
        texts = {id_: "NULL" if v is None else "'" + v.replace("'", "''") + "'" for id_, v in rows.items()}
        values = ", ".join(f"({id_}, {v})" for id_, v in texts.items())
        self.loads += 1
        append(self.lake.duckdb, self.table, f"SELECT * FROM (VALUES {values}) t(id, v)", f"load {self.loads}")
        self.becomes({**self.rows, **rows}, list(rows))

    def update(self, ids: Sequence[int], v: str | None) -> None:
        self._write(f"UPDATE {self.name} SET v = {sql_text(v)} WHERE id IN ({', '.join(map(str, ids))})")
        self.becomes({**self.rows, **dict.fromkeys(ids, v)}, ids)

    def delete(self, ids: Sequence[int]) -> None:
        self._write(f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, ids))})")
        self.becomes({id_: v for id_, v in self.rows.items() if id_ not in ids}, ids)

    def _write(self, statement: str) -> None:
        (self.lake.run if self.by_spark else self.lake.quick)(statement)

    def merge(self, rows: Mapping[int, str | None], deleted: Sequence[int]) -> None:
        """Update or insert rows, and delete others."""
        source = [f"({id_}, {sql_text(v)}, false)" for id_, v in rows.items()] + [f"({id_}, '', true)" for id_ in deleted]
        self.lake.run(
            f"MERGE INTO {self.name} t USING (SELECT * FROM VALUES {', '.join(source)} AS s(id, v, gone)) s ON t.id = s.id "
            "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
        left = {id_: v for id_, v in self.rows.items() if id_ not in deleted}
        self.becomes({**left, **rows}, [*rows, *deleted])

    def overwrite(self, rows: Mapping[int, str | None]) -> None:
        values = ", ".join(f"({id_}, {sql_text(v)})" for id_, v in rows.items())
        self.lake.quick(f"INSERT OVERWRITE {self.name} VALUES {values}")
        self.becomes(rows, sorted({*self.rows, *rows}))

    def step(self) -> None:
        """Do one of these to random rows."""
        chance = self.chance
        ids = sorted(self.rows)
        some = chance.sample(ids, min(len(ids), chance.randint(1, 6)))
        absent = chance.sample([id_ for id_ in range(60) if id_ not in self.rows], chance.randint(1, 8))
        made = {id_: chance.choice(_TEXTS) for id_ in absent}
        if not some or (kind := chance.randrange(12)) < 2:
            self.insert(made)
        elif kind < 4:
            self.load(made)
        elif kind < 6:
            self.update(some, chance.choice(_TEXTS))
        elif kind < 8:
            self.delete(some)
        elif kind < 10:
            half = len(some) // 2
            self.merge({**made, **{id_: chance.choice(_TEXTS) for id_ in some[:half]}}, some[half:])
        elif kind < 11:
            self.overwrite({id_: chance.choice(_TEXTS) for id_ in [*some, *absent]})
        else:
            # A version without changed rows.
            self.lake.quick(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('test.step' = '{chance.random()}')")

    def until(self, version: int) -> dict[int, list[Change]]:
        """The messages to be expected of the versions up to one."""
        found = {id_: [change for change in all_ if change[3] <= version] for id_, all_ in self.expected.items()}
        return {id_: changes for id_, changes in found.items() if changes}


def topic_of(followed: FollowedTable, topic: str) -> PublishedTopic:
    """Two partitions, and transactions so small that most versions are read in parts."""
    return PublishedTopic(followed.table.table_name, ("id",), topic, 2, most_messages=4)


def consumed(kafka: Kafka, topic: str, isolation: str = "read_committed") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the keys and values of a topic that a consumer sees, by partition and offset."""
    ends = kafka.offset_range([topic]).latest[topic]
    settings = {"group.id": "test", "isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    consumer = Consumer({**kafka.client_settings([]), **settings})
    found = list[tuple[dict[str, Any], dict[str, Any]]]()
    try:
        for partition in ends:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (record := consumer.poll(30)) is not None and not record.error():
                found.append((json.loads(record.key() or b""), json.loads(record.value() or b"")))
            assert record is not None, "the broker does not answer"
    finally:
        consumer.close()
    return found


def changes_in(kafka: Kafka, topic: str) -> dict[int, list[Change]]:
    """Return the changes that a consumer of committed records sees, by the key and in their order."""
    found = defaultdict[int, list[Change]](list)
    for key, value in consumed(kafka, topic):
        before, after = (NO_ROW if value[image] is None else value[image]["v"] for image in ("before", "after"))
        assert all(value[image] is None or value[image]["id"] == key["id"] for image in ("before", "after"))
        found[key["id"]].append((value["op"], before, after, value["source"]["version"]))
    return dict(found)
