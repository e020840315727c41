"""A table of the strategy `append` in the lakehouse, beside its model, under random changes."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledge
from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK, RuleDialect
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.table_passes import materialize_appended
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued, TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.components.append_model import LEAST, AppendModel, InputRow, Numbered, TableVersion
from tests.components.declared_syncs import erase
from tests.components.incremental_tables import KilledPass, killed, moved
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse


class AppendedTable:
    """The table, and its model. Every operation changes both, and compares them.

    Attributes:
        engine: What computes the table.
        sql: Its words.
        commit: The step of a pass that makes its commit.
        steps: Others at which a pass dies.
    """

    engine, sql = Engine.SPARK, SPARK
    commit: tuple[Any, str] = (Spark, "merge_following")
    steps: tuple[tuple[Any, str], ...] = ((QueryInputs, "added"), (Spark, "computed"), (Spark, "ensure_table"))

    def __init__(self, lake: Lakehouse | Sparkless, schema: str, seed: str, patch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)  # noqa: S311 changes, not keys
        self.lake, self.schema, self.patch, self.model = lake, schema, patch, AppendModel()
        self.keys = ("id",) if self.chance.random() < 0.5 else ()
        self.log, self.ids, self.done = [seed], 0, Counter[str]()
        lake.spark.catalog.ensure_schemas((f"{schema}_in", schema, "ops"))
        self.a, self.b, self.t = f"{schema}_in.a", f"{schema}_in.b", f"{schema}.t"
        create = "CREATE TABLE {} ({}) USING DELTA TBLPROPERTIES ('delta.enableChangeDataFeed' = '{}')"
        lake.quick(create.format(self.a, "id INT, k INT, v INT", str(self.chance.random() < 0.5).lower()))
        lake.quick(create.format(self.b, "k INT, w INT", "false"))

    def step(self) -> None:
        """Some operations on the inputs and the table, and a pass."""
        for _ in range(self.chance.choice((1, 1, 2))):
            # What can be done depends on what was done before.
            (operation,) = self.chance.choices(*self._operations())
            operation()
        what = self.chance.random()
        if self.model.fails:
            self.refused_pass()
        elif what < 0.3:
            self.killed_pass()
        elif what < 0.5:
            self.passes_at_once()
        elif what < 0.6 and self.model.table:
            self.restored_pass()
        else:
            self.checked_pass()

    def _operations(self) -> tuple[list[Callable[[], None]], list[int]]:
        weighted: list[tuple[Callable[[], None], int]] = [
            (self.insert, 10),
            (self.weigh, 3),
            (self.recode, 2),
            *([(self.rewrite, 2), (self.take_back, 1)] if self.model.rows else []),
            *([(self.erase, 4)] if self.model.rows and isinstance(self.lake, Lakehouse) else []),
            *([] if self.keys else [(self.insert_again, 4)]),
            *([(self.restore, 2), (self.delete, 1), (self.fence, 2)] if self.model.table else []),
            *([(self.lose_log, 1)] if self.model.table and isinstance(self.lake, Lakehouse) else []),
        ]
        return [each for each, _ in weighted], [weight for _, weight in weighted]

    def begin(self) -> None:
        """The first pass, by DuckDB in milliseconds: the engine of the table goes on where it ended."""
        self._note("first pass")
        driving = TableName(f"{self.schema}_in", "a")
        with self.lake.duckdb.session() as session:
            declared = self.declared(Engine.DUCKDB, DUCKDB)
            assert list(materialize_appended(self.lake.spark, declared, driving, session))
        self.model.pass_over()
        self.compare()

    def checked_pass(self) -> None:
        """A pass: the rows of the model, in one version, or none for none."""
        self._note("pass")
        self.run()
        self.model.pass_over()
        self.compare()

    def refused_pass(self) -> None:
        """A pass that is an error, and writes nothing until a full refresh."""
        self._note("refused pass")
        with pytest.raises(HistoryNotContinued, match="full_refresh: true"):
            self.run()
        self.compare()
        if self.chance.random() < 0.7:
            self._note("full refresh")
            self.run(full_refresh=True)
            self.model.refresh()
            self.compare()

    def killed_pass(self) -> None:
        """A pass that dies at one of its steps; the table has all of its rows, or none."""
        after = self.chance.random() < 0.5
        owner, name = self.chance.choice((self.commit, self.commit, *self.steps))
        self._note(f"pass killed {'after' if after else 'before'} {name}")
        with killed(self.patch, owner, name, after=after, calls=1):
            try:
                self.run()
            except KilledPass:
                # Before its first commit the pass has made the table.
                if self._version() == 0 and not self.model.table:
                    self.model.table.append(TableVersion())
                if name == self.commit[1] and after:
                    self.model.pass_over()
            else:
                self.model.pass_over()
        self.compare()

    def passes_at_once(self) -> None:
        """A pass comes to its commit after another one, before or after which the input got rows."""
        self._note("passes at once")
        early = self.chance.random() < 0.5

        def another() -> None:
            if early:
                self.insert()
            self.run()
            self.model.pass_over()
            if not early:
                self.insert()

        with moved(self.patch, *self.commit, another):
            self.run()
        self.model.pass_over()
        self.compare()

    def restored_pass(self) -> None:
        """The table is restored before a pass comes to its commit."""
        self._note("restored pass")
        refused = False
        with moved(self.patch, *self.commit, self.restore):
            try:
                self.run()
            except HistoryNotContinued:
                refused = True
        assert refused == self.model.fails, self.reproduced()
        if not refused:
            self.model.pass_over()
        self.compare()

    def insert(self) -> None:
        rows = list[InputRow]()
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            self.ids += 1
            rows.append((self.ids, self.chance.randint(0, 3), self.chance.randint(-9, 9)))
        values = ", ".join(map(str, rows))
        if isinstance(self.lake, Sparkless) or self.chance.random() < 0.7:
            self._run_statement(f"INSERT INTO {self.a} VALUES {values}")
        else:
            self._run_statement(
                f"MERGE INTO {self.a} AS t USING (SELECT * FROM VALUES {values} AS s(id, k, v)) AS s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT *"
            )
        self.model.inputs.append(((*self.model.rows, *self.model.numbered(rows)), False))

    def insert_again(self) -> None:
        """Insert a row that is equal to one that the driving input has or had."""
        rows, _ = self.chance.choice(self.model.inputs)
        if rows:
            _, row = self.chance.choice(rows)
            self._run_statement(f"INSERT INTO {self.a} VALUES {row}")
            self.model.inputs.append(((*self.model.rows, *self.model.numbered([row])), False))

    def rewrite(self) -> None:
        """Update or delete a row of the driving input, and with it all equal ones."""
        _, (chosen, *_) = self.chance.choice(self.model.rows)
        if self.chance.random() < 0.5:
            self._run_statement(f"DELETE FROM {self.a} WHERE id = {chosen}")
            self.model.inputs.append((self._without(chosen), True))
        else:
            self._run_statement(f"UPDATE {self.a} SET v = v + 1 WHERE id = {chosen}")
            found = [(n, k, v + 1) for _, (n, k, v) in self.model.rows if n == chosen]
            self.model.inputs.append(((*self._without(chosen), *self.model.numbered(found)), True))

    def erase(self) -> None:
        """Delete a row of the driving input, and all equal ones, in a commit that is acknowledged, at once or later."""
        _, (chosen, *_) = self.chance.choice(self.model.rows)
        full_name = f"ratify.{self.a}"
        assert isinstance(self.lake, Lakehouse)
        if self.chance.random() < 0.5:
            self._note(f"erasure of {chosen}")
            erase(self.lake, full_name, chosen)
        else:
            self._run_statement(f"DELETE FROM {self.a} WHERE id = {chosen}")
            self._note("acknowledged")
            acknowledge(self.lake.spark, full_name, [self.lake.catalog.version(full_name)], "Of a test")
        self.model.inputs.append((self._without(chosen), False))

    def _without(self, chosen: int) -> tuple[Numbered, ...]:
        return tuple(row for row in self.model.rows if row[1][0] != chosen)

    def take_back(self) -> None:
        """Restore the driving input to an earlier version."""
        version = self.chance.randrange(len(self.model.inputs))
        self._run_statement(f"RESTORE TABLE {self.a} TO VERSION AS OF {version}")
        if self.lake.catalog.version(f"ratify.{self.a}") == len(self.model.inputs):
            self.model.inputs.append((self.model.inputs[version][0], True))

    def weigh(self) -> None:
        """Change the other input."""
        k, w = self.chance.randint(0, 3), self.chance.randint(0, 99)
        self.model.weights[k] = w
        self._run_statement(f"DELETE FROM {self.b} WHERE k = {k}")
        self._run_statement(f"INSERT INTO {self.b} VALUES ({k}, {w})")

    def recode(self) -> None:
        """Change the query."""
        self.model.factor += 1
        self._note(f"query with factor {self.model.factor}")

    def restore(self) -> None:
        """Restore the table, and with it up to where it has taken the input."""
        version = self.chance.randrange(self.model.first, len(self.model.table))
        self._run_statement(f"RESTORE TABLE {self.t} TO VERSION AS OF {version}")
        # Where the files are the same, Delta makes no version.
        if self._version() == len(self.model.table):
            self.model.table.append(self.model.table[version])

    def lose_log(self) -> None:
        """Commit a property, and let all versions before that expire, as Spark does it with a checkpoint."""
        model = self.model
        self._run_statement(f"ALTER TABLE {self.t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
        model.table.append(model.table[-1])
        model.first = self._version()
        assert isinstance(self.lake, Lakehouse)
        log = self.lake.folder(f"ratify.{self.t}") / "_delta_log"
        assert list(log.glob(f"{model.first:020d}.checkpoint*")), self.reproduced()
        self._note("the versions before that expire")
        for path in log.rglob("[0-9]*"):
            if path.is_file() and int(path.name[:20]) < model.first:
                path.unlink()
        model.table = [replace(version, known=False) for version in model.table]

    def fence(self) -> None:
        """Fence the table, as an erasure does that finds no row in it."""
        self._note("fence")
        self.lake.duckdb.log(f"ratify.{self.t}").commit(fencing, partitioned=True)
        self.model.table.append(self.model.table[-1])

    def delete(self) -> None:
        """Delete a row of the table, which stays deleted."""
        last = self.model.table[-1]
        if last.rows:
            chosen = self.chance.choice(last.rows)
            self._run_statement(f"DELETE FROM {self.t} WHERE id = {chosen[0]}")
            rows = tuple(row for row in last.rows if row[0] != chosen[0])
            self.model.table.append(replace(last, rows=rows))

    def run(self, *, full_refresh: bool = False) -> None:
        with self.session() as session:
            for _ in materialize_appended(
                self.lake.spark, self.declared(), TableName(f"{self.schema}_in", "a"), session, full_refresh=full_refresh
            ):
                pass

    def session(self) -> AbstractContextManager[DuckDBSession | None]:
        return nullcontext()

    def declared(self, engine: Engine | None = None, sql: RuleDialect | None = None) -> ValidatedQuery:
        engine, sql = engine or self.engine, sql or self.sql
        text = (
            f"SELECT a.id, a.v * {self.model.factor} AS v, b.w FROM {self.a} AS a LEFT JOIN {self.b} AS b ON a.k = b.k "
            f"WHERE a.v > {LEAST}"
        )
        declaration = TableDeclaration(
            layer=self.schema,
            name="t",
            columns=(),
            comment="Of a test",
            writer=engine,
            operations=frozenset({"WRITE"}),
            inferred=True,
        )
        expectations = Expectations((), identity=self.keys, dialect=sql)
        return ValidatedQuery(declaration, TableQuery.parsed(text, sql.parsed_as, "t"), expectations, keys=self.keys)

    def compare(self) -> None:
        version = self._version()
        assert version == len(self.model.table) - 1, (version, self.reproduced())
        if version >= 0:
            found = Counter(tuple(row.values()) for row in self.lake.quick(f"SELECT id, v, w FROM {self.t}"))
            assert found == Counter(self.model.table[-1].rows), (found, self.reproduced())

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
        # Spark updates and deletes rows in ways of its own, and restores the property of a fence.
        quick = ("INSERT",) if self.done["fence"] else ("INSERT", "RESTORE")
        (self.lake.quick if statement.startswith(quick) else self.lake.run)(statement)

    def _note(self, text: str) -> None:
        self.log.append(text)
        self.done[" ".join(text.split()[:2])] += 1
