"""A table of the strategy `scd2` in the lakehouse, beside the model of it in plain Python, under random changes."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import SPARK
from ratify_lakehouse.components.query_engines import QueryEngine
from ratify_lakehouse.components.sql_table import resolve
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.strategies.history_rows import HistoryPass
from ratify_lakehouse.components.strategies.table_passes import materialize_history
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.row_history import RowHistory
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.history_model import HistoryModel, SourceRow
from tests.components.incremental_tables import KilledPass, killed, moved, without_pictures
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

_FAILING = 3
"""A value that an expectation takes out, where there is one."""
_LATER = 4_102_444_800_000_000
"""Microseconds: rows after the commits of the test, so that they are not older than a gap in their history."""


class HistoryTable:
    """Every operation changes the table and the model, and compares them.

    Attributes:
        engine: What computes the table.
        sql: Its words.
        commit: The step of a pass that makes a commit.
        steps: Others at which a pass dies.
        passes: Their class.
        fixed: Whether a pass reads its inputs at the versions that it has noted, whatever becomes of them.
    """

    engine, sql = Engine.SPARK, SPARK
    commit: tuple[type, str] = (Spark, "merge_changes")
    steps: tuple[tuple[type, str], ...] = ((Spark, "computed"), (Spark, "ensure_table"))
    passes: type = ChangedRows
    fixed = True

    def __init__(self, lake: Lakehouse | Sparkless, schema: str, seed: str, patch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)  # noqa: S311 changes, not keys
        self.lake, self.schema, self.patch = lake, schema, patch
        self.dated, self.action = self.chance.random() < 0.6, self.chance.choice((None, Action.DROP, Action.QUARANTINE))
        self.model = HistoryModel(close=self.chance.random() < 0.7)
        self.source, self.versions = list[SourceRow](), list[HistoryModel]()
        self.log, self.done = [f"{seed}: dated {self.dated}, {self.action}, close {self.model.close}"], Counter[str]()
        lake.spark.catalog.ensure_schemas((f"{schema}_in", schema))
        self.a, self.t = f"{schema}_in.a", f"{schema}.t"
        lake.quick(f"CREATE TABLE {self.a} (k INT, j STRING, value INT, note INT, changed TIMESTAMP) USING DELTA")
        self.change(self.insert)

    def create(self) -> None:
        """Make the table, as the first pass would."""
        with self.one_pass() as one:
            self.lake.create(resolve(one, self.declared()).declaration)

    @contextmanager
    def one_pass(self) -> Iterator[QueryEngine]:
        yield HistoryPass(self.lake.spark, self.declared())

    def step(self) -> None:
        """Some operations on the input, and a pass."""
        chosen = self.chance.choices(*self._operations(), k=self.chance.choice((1, 2, 3)))
        if self.chance.random() < 0.85:
            self.change(*chosen)
        elif self.versions and self.chance.random() < 0.5:
            self.restore()
        what = self.chance.random()
        if what < 0.25:
            self.killed_pass()
        elif what < 0.5:
            self.passes_at_once()
        else:
            self.checked_pass()

    def _operations(self) -> tuple[list[Callable[[], None]], list[int]]:
        weighted: list[tuple[Callable[[], None], int]] = [
            (self.insert, 4),
            (self.update, 5),
            (self.note, 2),
            (self.delete, 3),
            (lambda: None, 1),
        ]
        return [each for each, _ in weighted], [weight for _, weight in weighted]

    def change(self, *operations: Callable[[], None]) -> None:
        """Operations on the input, in one version of it."""
        for operation in operations:
            operation()
        if not self.source:
            return self._run_statement(f"DELETE FROM {self.a} WHERE true")
        rows = (
            f"({row.key[0]}, {row.key[1]}, {row.value or 'NULL'}, {row.note or 'NULL'}, {_timestamp(row.time or 0)})"
            for row in self.source
            if isinstance(row.key, tuple)
        )
        return self._run_statement(f"INSERT OVERWRITE {self.a} VALUES {', '.join(rows)}".replace("None", "NULL"))

    def insert(self) -> None:
        """A row of a key that was there, or of another time, or of a new one."""
        key = (self.chance.choice((1, 1, 2, 3, None)), self.chance.choice(("'x'", "'x'", None)))
        row = SourceRow(key, self._value(), self._value(), self._time())
        if not any(each.key == row.key and each.time == row.time for each in self.source):
            self.source.append(row)

    def update(self) -> None:
        self._replace(lambda row: replace(row, value=self._value(), time=self._time()))

    def note(self) -> None:
        self._replace(lambda row: replace(row, note=self._value()))

    def delete(self) -> None:
        if self.source:
            self.source.remove(self.chance.choice(self.source))

    def _replace(self, by: Callable[[SourceRow], SourceRow]) -> None:
        if self.source:
            row = self.chance.choice(self.source)
            others, made = [each for each in self.source if each is not row], by(row)
            if not any(each.key == made.key and each.time == made.time for each in others):
                self.source = [*others, made]

    def _value(self) -> int | None:
        return self.chance.choice((None, 1, 2, _FAILING if self.action else 4))

    def _time(self) -> int | None:
        return self.chance.choice((0, 0, _LATER)) + self.chance.randint(1, 9) if self.dated else None

    def restore(self) -> None:
        """Restore the table: the next pass goes on from the history that it has then."""
        version = self.chance.randrange(len(self.versions))
        before = self._version()
        self._run_statement(f"RESTORE TABLE {self.t} TO VERSION AS OF {version}")
        if self._version() != before:
            self.model = deepcopy(self.versions[version])
            self.versions.append(deepcopy(self.model))

    def checked_pass(self) -> None:
        """A pass: the history of the model, in one version, or none for none."""
        self._note("pass")
        self.run()
        self.passed(*self.read())
        self.compare()

    def killed_pass(self) -> None:
        """A pass that dies at one of its steps; the table has all of what it computed, or nothing."""
        after = self.chance.random() < 0.5
        owner, name = self.chance.choice((self.commit, self.commit, *self.steps))
        self._note(f"pass killed {'after' if after else 'before'} {name}")
        with killed(self.patch, owner, name, after=after, calls=1):
            try:
                self.run()
            except KilledPass:
                if self._version() == 0 and not self.versions:
                    self.versions.append(deepcopy(self.model))
                if name == self.commit[1] and after:
                    self.passed(*self.read())
            else:
                self.passed(*self.read())
        self.compare()

    def passes_at_once(self) -> None:
        """A pass comes to its commit, or begins to compute, after another one, before or after which the input changed."""
        self._note("passes at once")
        early, first = self.chance.random() < 0.5, self.read()
        overtaken, begun, begin = list[bool](), list[object](), self.passes.__init__
        seam = self.chance.choice((self.commit, (self.passes, "record")))

        def beginning(one: object, *arguments: Any, **more: Any) -> None:
            begun.append(one)
            begin(one, *arguments, **more)

        def another() -> None:
            if early:
                self.change(self.update)
            self.run()
            overtaken.append(self.passed(*self.read()))
            if not early:
                self.change(self.update)

        # Each of them has read its inputs, or has noted their versions.
        with moved(self.patch, *seam, another), self.patch.context() as patch:
            patch.setattr(self.passes, "__init__", beginning)
            self.run()
        # Where the other pass changed nothing, this one commits what it has computed.
        if overtaken != [True] and (self.fixed or seam == self.commit):
            self.passed(*first)
        # Where that one changed the table, or the quarantine alone, this one begins again, unless both read the same.
        if len(begun) > 2:
            self.passed(*self.read())
        self.compare()

    def read(self) -> tuple[list[SourceRow], int, list[Any]]:
        """What a pass reads now: the rows that pass, its time, and the keys of those that fail."""
        (commit,) = self.lake.spark.recent_commits(f"ratify.{self.a}", 1)
        failing = [row for row in self.source if self.action and row.value == _FAILING]
        rows = [row for row in self.source if row not in failing]
        return rows, round(commit.timestamp.timestamp() * 1_000_000), [row.key for row in failing]

    def passed(self, rows: list[SourceRow], at: int, failing: list[Any]) -> bool:
        """Take a pass into the model, and return whether it makes a version."""
        if not self.versions:
            self.versions.append(deepcopy(self.model))
        before = deepcopy(self.model.rows)
        self.model.pass_over(rows, at, failing)
        if changed := Counter(before) != Counter(self.model.rows):
            self.versions.append(deepcopy(self.model))
        return changed

    def run(self) -> dict[str, Any]:
        made = [each for each in self.results() if isinstance(each, dg.MaterializeResult)]
        return dict(made[0].metadata or {})

    def results(self) -> Iterator[Any]:
        yield from materialize_history(self.lake.spark, self.declared())

    def declared(self) -> HistoryQuery:
        changed = ["changed"] if self.dated else []
        declaration = TableDeclaration(
            layer=self.schema,
            name="t",
            columns=(),
            comment="Of a test",
            writer=self.engine,
            operations=frozenset({"MERGE"}),
            keys=("k", "j", "valid_from"),
            inferred=True,
        )
        query = TableQuery.parsed(
            f"SELECT {', '.join(['k, j, value, note', *changed])} FROM {self.a}", self.sql.parsed_as, "t"
        )
        rules = [Expectation("passes", f"value IS NULL OR value <> {_FAILING}", self.action)] if self.action else []
        keys = ("k", "j", *changed)
        followed = RowHistory(("k", "j"), "".join(changed), ("note",), self.model.close)
        expectations = Expectations(tuple(rules), identity=keys, dialect=self.sql)
        return HistoryQuery(declaration, query, expectations, keys=keys, history=followed)

    def compare(self) -> None:
        version = self._version()
        assert version == len(self.versions) - 1, (version, len(self.versions) - 1, self.reproduced())
        if version >= 0:
            ends = "unix_micros(valid_from) AS since, unix_micros(valid_to) AS until"
            ends += f", unix_micros({'changed' if self.dated else 'valid_from'}) AS dated"
            rows = self.lake.quick(f'SELECT k, concat("\'", j, "\'") AS j, value, note, {ends}, current FROM {self.t}')
            assert all(row["current"] == (row["until"] is None) for row in rows)
            names = ("value", "note", "since", "until", "dated")
            found = Counter(((row["k"], row["j"]), *(row[name] for name in names)) for row in rows)
            assert found == Counter(self.model.rows), (found, self.model.rows, self.reproduced())

    def reproduced(self) -> str:
        """How to see a failure again."""
        return "\n".join(["", *self.log])

    def _version(self) -> int:
        try:
            return self.lake.catalog.version(f"ratify.{self.t}")
        except TableMissing:
            return -1

    def _run_statement(self, statement: str) -> None:
        self._note(statement)
        self.lake.quick(statement)

    def _note(self, text: str) -> None:
        self.log.append(text)
        self.done[" ".join(text.split()[:2])] += 1


def history_sequence(table: HistoryTable, steps: int) -> None:
    """Some operations and a pass, many times, and at last a pass without a change of the input."""
    without_pictures(table.patch)
    table.checked_pass()
    for _ in range(steps):
        table.step()
    table.checked_pass()
    print(f"{table.log[0]}: {dict(table.done)}")


def _timestamp(time: int) -> str:
    later, micros = divmod(time, _LATER)
    return f"TIMESTAMP '{'2100' if later else '1970'}-01-01 00:00:00.{micros:06}Z'"
