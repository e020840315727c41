"""A table of Flink over a topic of transactions: what it has of those that are committed, aborted, and open."""

from collections import Counter

import pytest

from ratify_lakehouse.components.flink.flink_checks import KEYS_UNIQUE
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.test_yaml_tables import Project, project
from tests.engines.lakehouse import Lakehouse
from tests.kafka.transactions import Transactions, transactions
from tests.sample.flink_project import FlinkProject

__all__ = ["project"]

pytestmark = [pytest.mark.stack, pytest.mark.server, pytest.mark.long]

DECLARATION = """type: ratify_lakehouse.FlinkSql
attributes:
  description: Records
  topics: [{{topic: {topic}, name: events}}]
  isolation: {isolation}
  keys: [partition, offset]
  columns:
    - {{name: partition, type: int}}
    - {{name: offset, type: bigint}}
    - {{name: key, type: string}}
    - {{name: value, type: string}}
  checkpoint_seconds: 1
"""
QUERY = "SELECT `partition`, `offset`, `key`, `value` FROM events\n"
Row = tuple[int, int, str, None]


class SentRecords:
    """Records of transactions, by their offsets; a mark takes the offset after the records of its transaction."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.rows = list[Row]()
        self._ends = Counter[int]()

    def send(self, producer: Transactions, key: str, *partitions: int) -> None:
        """Send a record without a value to each of these partitions."""
        producer.send([(self.topic, at, key) for at in partitions])
        for at in partitions:
            self.rows.append((at, self._ends[at], key, None))
            self._ends[at] += 1

    def end(self, producer: Transactions, *partitions: int, commit: bool) -> None:
        producer.end(commit=commit)
        self._ends.update(partitions)

    def of(self, *keys: str) -> list[Row]:
        return sorted(row for row in self.rows if row[2] in keys)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_committed_records_are_read_and_others_only_where_that_is_declared(
    lake: Lakehouse, project: Project, kafka: Kafka, fresh_topic: str, isolation: str
) -> None:
    made, sent = FlinkProject(lake, project, kafka, fresh_topic), SentRecords(fresh_topic)
    project.write("gold", made.name, DECLARATION.format(topic=fresh_topic, isolation=isolation), QUERY)
    table, all_of_them = made.table, isolation == "read_uncommitted"
    kafka.ensure_topic(fresh_topic, 3)
    read = [0]

    def check(*keys: str, began: str) -> None:
        """Run the table; it has the records of these transactions, or all, and its check has counted them."""
        done, expected = made.materialized(), sorted(sent.rows) if all_of_them else sent.of(*keys)
        assert [row[:4] for row in lake.stored(table.declaration)] == expected
        assert done["began at"].startswith(began)
        assert (done["restarts"], done["records behind"]) == (0, 0)
        # By offsets, up to the last record of each partition: those of aborted records and marks are among them.
        read.append(sum({at: offset + 1 for at, offset, _, _ in expected}.values()))
        assert done["records read"] == read[-1] - read[-2]
        assert (done[KEYS_UNIQUE]["rows"], done[KEYS_UNIQUE]["keys with several rows"]) == (len(expected), 0)
        assert table.waiting(kafka, lake.spark) == 0

    with transactions(kafka, f"{fresh_topic}-a", None) as producer, transactions(kafka, f"{fresh_topic}-b", None) as other:
        sent.send(producer, "committed", 0, 0, 0, 1, 1)
        sent.end(producer, 0, 1, commit=True)
        # The third partition has no committed record, the first one none at its end, the second one an open transaction.
        sent.send(producer, "aborted", 0, 1, 2, 2)
        sent.end(producer, 0, 1, 2, commit=False)
        sent.send(producer, "committed", 0)
        sent.end(producer, 0, commit=True)
        sent.send(other, "later", 1, 1)
        sent.send(producer, "aborted", 0)
        sent.end(producer, 0, commit=False)
        check("committed", began="the start of the topics")
        # From here on the job begins at its savepoint, behind the last record that it was given.
        sent.end(other, 1, commit=True)
        sent.send(other, "aborted", 0, 1, 2)
        sent.end(other, 0, 1, 2, commit=False)
        sent.send(producer, "committed", 2)
        sent.end(producer, 2, commit=True)
        check("committed", "later", began="checkpoint ")
        sent.send(other, "aborted", 0, 1, 2)
        sent.end(other, 0, 1, 2, commit=False)
        if not all_of_them:
            assert made.materialized()[COMMITS]["versions"] == []
