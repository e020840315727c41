"""Records of members that land in files, the tables of them, and a model of what these have to hold."""

import datetime as dt
import gzip
import json
import shutil
from collections import Counter
from typing import Any

from ratify_lakehouse.components.checks.acknowledged_commits import ACKNOWLEDGED_COMMITS
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.errors import ResetRefused
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.cli.test_cli_restore import ratify
from tests.components.test_stream_tables import EVENTS, QUERY
from tests.components.test_yaml_tables import Shop
from tests.engines.live_tables import read_live
from tests.ingest.record_rows import put_records

RAW = """
type: ratify_lakehouse.KafkaEvents
attributes:
  description: Clicks, as they came
  topics: [clicks]
  source: files
  files: {folder}
  key: user
  time: at
  landed: {landed}
  subjects: {{member: [key, value.by.id]}}
"""
MEMBERS = EVENTS.replace("{name: user, type: string, pii: true}", "{name: user, type: string, pii: true, subject: member}")
NO_KAFKA = Kafka(bootstrap="127.0.0.1:1", timeout_seconds=0.1)


class MemberClicks:
    """Records of members that land in files, a table of them and one of their clicks; and the model of all of it.

    Attributes:
        landed: The lines of each file, with the members of each, as they landed.
        erased: The members that were erased.
        by: The members that are in records of others.
        validated: Whether the stream has run.
    """

    def __init__(self, given: Shop, landed: str) -> None:
        self.lake, self.shop, self.project = given.lake, given, given.project
        self.folder = self.project.root.parent / "clicks"
        self.folder.mkdir()
        for layer in ("bronze", "silver", "gold"):
            shutil.rmtree(self.project.root / self.project.schema(layer))
        self.project.write("bronze", "clicks", RAW.format(folder=self.folder, landed=landed))
        self.project.write("silver", "clicks", MEMBERS, QUERY)
        tables = self.project.tables
        (self.records,), (self.stream,) = tables.record_tables, tables.streams
        # In milliseconds: that the streams would create them is not what is tested.
        for table in (self.raw, *self.stream.tables, ERASED_SUBJECTS, ACKNOWLEDGED_COMMITS):
            self.lake.ensure(table)
        self.landed = dict[str, list[tuple[tuple[str, ...], str]]]()
        self.erased, self.by = set[str](), set[str]()
        self.validated = False
        self.minute = 0

    @property
    def raw(self) -> TableDeclaration:
        return self.records.declaration

    def land(self, name: str, *members: str, broken: str = "", by: str = "") -> None:
        lines = list[tuple[tuple[str, ...], str]]()
        self.by.update(filter(None, [by]))
        for member in members:
            self.minute += 1
            at = f"2026-01-{1 + self.minute // 1440:02}T{self.minute // 60 % 24:02}:{self.minute % 60:02}:00Z"
            value: dict[str, Any] = {"user": member, "at": at, "page": "p", **({"by": {"id": by}} if by else {})}
            lines.append(((member, by), json.dumps(value, ensure_ascii=self.minute % 2 == 0)))
        if broken:
            lines.append(((broken,), json.dumps({"user": broken, "at": "no time"})))
        self.landed[name] = lines
        self.write(name, [line for _, line in lines])

    def write(self, name: str, lines: list[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        (self.folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    def put(self) -> None:
        """Put what has landed into the tables as `read` and `validate` do, in milliseconds and without checkpoints."""
        records, accepted, quarantined = list[tuple[Any, ...]](), list[str](), list[str]()
        for name, lines in self.landed.items():
            for offset, ((member, *_), line) in enumerate(lines):
                of_file, at = f"'files:{name}', 0, {offset}", json.loads(line)["at"]
                now = dt.datetime.now(dt.UTC) if at == "no time" else dt.datetime.fromisoformat(at)
                records.append((member.encode(), line.encode(), f"files:{name}", 0, offset, now, 0, None))
                if at == "no time":
                    texts = f"encode({literal(member)}), encode({literal(line)})"
                    quarantined.append(f"({texts}, NULL, {of_file}, now(), ['time_is_given'], now(), NULL, NULL)")
                else:
                    accepted.append(f"({literal(member)}, '{at}', 'p', {of_file}, '{at}')")
        put_records(self.lake, self.raw, records)
        for table, rows in zip(self.stream.written, (accepted, quarantined), strict=True):
            self.lake.insert(table, f"VALUES {', '.join(rows)}")

    def read(self, **config: Any) -> None:
        ingest(NO_KAFKA, self.lake.spark, self.raw, SourceOptions(**{**self.records.options.model_dump(), **config}))

    def validate(self, **how: Any) -> None:
        self.validated = True
        self.stream.ensure_tables(self.lake.spark)
        try:
            self.stream.run(self.lake.spark, **how)
        except ResetRefused:
            # It has rows of others, whose records were of an erased member.
            assert any(by in self.erased for by in self.by)
            self.stream.run(self.lake.spark, full_refresh=True)

    def erase(self, member: str) -> dict[str, Any]:
        words = ("--subject", f"member={member}", "--apply", "--reason", "request 7", "--all-rows", "--json")
        printed = ratify("erase", *words)
        assert member not in printed
        self.erased.add(member)
        return json.loads(printed)

    def held(self) -> Counter[str]:
        return Counter(value for (value,) in self.look(f"SELECT decode(value) FROM uc.{self.raw.table_name}"))

    def look(self, sql: str) -> list[tuple[Any, ...]]:
        return read_live(self.lake.duckdb, sql)

    def users(self, table: TableDeclaration) -> Counter[str]:
        return Counter(user for (user,) in self.look(f"SELECT coalesce(decode(key), '') FROM uc.{table.table_name}"))

    def expected(self) -> Counter[str]:
        return Counter(line for lines in self.landed.values() for members, line in lines if self.erased.isdisjoint(members))

    def assert_reconciled(self) -> None:
        with self.lake.duckdb.session() as session:
            session.attach()
            found = records_reconciled(self.stream.reconciliation.counts(session))
        assert found.passed, found.description
        counts = (self.look(f"SELECT count(*) FROM uc.{each.table_name}") for each in self.stream.written)
        assert sum(rows for ((rows,),) in counts) == sum(self.expected().values())
