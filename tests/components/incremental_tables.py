"""Tables of the strategy `incremental` over random inputs, compared with their queries, which the engine computes whole."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components import table_asset
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK
from ratify_lakehouse.components.sql_table import ValidatedQuery, split_rows
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.affected_keys import keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable
from ratify_lakehouse.sql.spark_sql import identifier
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.random_inputs import COLUMNS, RandomInputs
from tests.components.random_queries import QueryGrammar, RandomQuery
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

SourceRows = list[tuple[int, int]]
"""Rows of a source with two columns."""


class KilledPass(BaseException):
    """The process ends here."""


@dataclass
class IncrementalTable:
    """A table, and what is known of it.

    Attributes:
        name: Its own.
        query: Its.
        quarantined: Rows whose first key is NULL go to quarantine.
        never: Patterns of the reasons for which it cannot be computed by changed keys; empty where it can.
        excuses: Patterns of the reasons for which its next pass may compute all rows.
    """

    name: str
    query: RandomQuery
    quarantined: bool
    never: set[str] = field(default_factory=set[str])
    excuses: set[str] = field(default_factory=lambda: {"the table is new"})
    passes: Counter[str] = field(default_factory=Counter[str])

    @property
    def predicate(self) -> str:
        return f"{self.query.keys[0]} IS NOT NULL"


def declared_query(
    schema: str,
    name: str,
    text: str,
    keys: Sequence[str],
    rules: tuple[Expectation, ...] = (),
    engine: Engine = Engine.SPARK,
) -> ValidatedQuery:
    """A table as the kind `SqlTable` declares it."""
    dialect = DUCKDB if engine is Engine.DUCKDB else SPARK
    declaration = TableDeclaration(
        layer=schema,
        name=name,
        columns=(),
        comment="Of a test",
        writer=engine,
        operations=frozenset({"MERGE"}),
        keys=tuple(keys),
        inferred=True,
    )
    expectations = Expectations(rules, identity=tuple(keys), dialect=dialect)
    return ValidatedQuery(declaration, TableQuery.parsed(text, dialect.parsed_as, name), expectations)


class IncrementalTables:
    """Tables of some queries over random inputs, in schemas of their own."""

    engine = Engine.SPARK
    steps: Sequence[tuple[Any, str]] = (
        *((QueryInputs, "create_views"), (Spark, "computed")),
        *((Spark, "ensure_table"), (Spark, "merge_following")),
    )
    """Where a pass dies or an input moves, before the call or after it: the last is each commit but that of a rebuild."""

    def __init__(self, lake: Lakehouse | Sparkless, schema: str, seed: str, queries: Sequence[RandomQuery]) -> None:
        self.chance = random.Random(seed)  # noqa: S311 changes, not keys
        self._lake, self.schema = lake, schema
        lake.spark.catalog.ensure_schemas((f"{schema}_in", schema))
        self.inputs = RandomInputs(lake, f"{schema}_in", self.chance, self._inputs_of(queries))
        self.tables = [
            IncrementalTable(f"t{number}", query, self.chance.random() < 0.2) for number, query in enumerate(queries)
        ]
        for table in self.tables:
            table.never = self._never(table)

    @staticmethod
    def random_query(seed: str, depth: int) -> RandomQuery:
        return QueryGrammar(seed).query(depth)

    @staticmethod
    def _inputs_of(queries: Sequence[RandomQuery]) -> list[str]:
        named = {name for query in queries for name in re.findall(r"\bbronze\.(\w)", query.text)}
        return sorted(named)

    def declared(self, table: IncrementalTable) -> ValidatedQuery:
        text = re.sub(r"\bbronze\.", f"{self.inputs.schema}.", table.query.text)
        rules = (Expectation("first_key_is_given", table.predicate, Action.QUARANTINE),) if table.quarantined else ()
        return declared_query(self.schema, table.name, text, table.query.keys, rules, self.engine)

    def _never(self, table: IncrementalTable) -> set[str]:
        query = self.declared(table).query
        reasons = set[str]()
        inexact = ("at", "other", "float", "bool", "array", "struct")
        if table.quarantined and any(table.query.columns[key] in inexact for key in table.query.keys):
            reasons.add("its quarantine has rows as JSON")
        try:
            keys_queries(query, table.query.keys, {name: list(COLUMNS[name.table]) for name in query.inputs})
        except NotDerivable as reason:
            reasons.add(re.escape(str(reason)))
        return reasons

    def change(self, number: int) -> None:
        for _ in range(number):
            self.inputs.change()
        for name in self.inputs.recreated:
            for table in self.tables:
                table.excuses.add(f"{self.inputs.schema}.{name} was dropped and created again since")
        self.inputs.recreated.clear()

    def recode(self, table: IncrementalTable) -> None:
        """Change the code of a table."""
        table.query = table.query.recoded(self.chance)
        table.never = self._never(table)
        table.excuses.add("its query or declaration has changed")

    def run(self, table: IncrementalTable) -> dict[str, Any]:
        """One pass; returns what it says of the table."""
        results = list(self.materialize(table))
        made = [each for each in results if isinstance(each, dg.MaterializeResult)]
        return dict(made[0].metadata or {})

    def materialize(self, table: IncrementalTable) -> Iterator[Any]:
        yield from materialize_changes(self._lake.spark, self.declared(table))

    def checked_pass(self, table: IncrementalTable) -> None:
        """One pass, which makes the table equal to its query, in at most one version."""
        before = self.versions(table)
        said = self.run(table)
        after = self.versions(table)
        reason = said.get("computed in full because", "")
        allowed = table.excuses | table.never
        assert not reason or any(re.match(pattern, reason) for pattern in allowed), (reason, allowed, self.reproduced(table))
        table.passes["full" if reason else "incremental"] += 1
        for old, new in zip(before, after, strict=True):
            assert old is None or new is None or new - old <= 1, self.reproduced(table)
        table.excuses.clear()

    def versions(self, table: IncrementalTable) -> list[int | None]:
        return [self._version(each) for each in self.declared(table).written]

    def _version(self, declaration: TableDeclaration) -> int | None:
        try:
            return self._lake.version(declaration)
        except TableMissing:
            return None

    def compare(self, tables: Sequence[IncrementalTable]) -> None:
        """Compare tables, and their quarantines, with their queries, as Spark computes them whole."""
        texts = [text for table in tables for text in self._compared(table)]
        found = self._lake.run("\nUNION ALL\n".join(texts))
        for table in tables:
            for name in (table.name, f"{table.name}_quarantine"):
                rows = {which: Counter[str]() for which in ("stored", "expected")}
                for row in found:
                    if row["name"] == name:
                        rows[row["which"]][row["line"]] += row["number"]
                missing, unexpected = rows["expected"] - rows["stored"], rows["stored"] - rows["expected"]
                assert (missing, unexpected) == ({}, {}), (name, missing, unexpected, self.reproduced(table))

    def _compared(self, table: IncrementalTable) -> Iterator[str]:
        validated = self.declared(table)
        rows = f"({validated.expectations.validated(validated.query.text)})"
        types = dict.fromkeys(validated.query.columns, "")
        queries = [query.replace("{rows}", rows) for query in split_rows(validated, types)]
        for declaration, query in zip(validated.written, queries, strict=False):
            columns = validated.query.columns if declaration is validated.declaration else ("rule", "row", "rows")
            # To SQL, and so to a pass, -0.0 and 0.0 are equal; their texts are not.
            added = {name: " + 0.0D" for name, kind in table.query.columns.items() if kind == "float"}
            shown = (f"{identifier(name)}{added.get(name, '')} AS {identifier(name)}" for name in columns)
            line = f"to_json(struct({', '.join(shown)}), map('ignoreNullFields', 'false'))"
            for which, relation in (("expected", f"({query})"), ("stored", declaration.table_name)):
                yield (
                    f"SELECT '{declaration.name}' AS name, '{which}' AS which, line, count(*) AS number "
                    f"FROM (SELECT {line} AS line FROM {relation}) GROUP BY line"
                )

    def reproduced(self, table: IncrementalTable) -> str:
        """How to see a failure again."""
        return "\n".join(["", table.query.text, str(table.query.keys), *self.inputs.log])


@contextmanager
def killed(patch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool, calls: int) -> Iterator[list[str]]:
    """The process ends before, or after, a call of a function; yields what says whether it came to that."""
    function: Callable[..., Any] = getattr(owner, name)
    made = list[str]()

    def dying(*arguments: Any, **more: Any) -> Any:
        made.append(name)
        if len(made) != calls:
            return function(*arguments, **more)
        if after:
            # What comes of the call, also if it is an error that the pass would go on from, nobody learns.
            with suppress(Exception):
                function(*arguments, **more)
        raise KilledPass(name)

    with patch.context() as within:
        within.setattr(owner, name, dying)
        yield made


@contextmanager
def moved(patch: pytest.MonkeyPatch, owner: Any, name: str, move: Callable[[], None]) -> Iterator[None]:
    """Something happens before the first call of a function."""
    function: Callable[..., Any] = getattr(owner, name)

    def moving(*arguments: Any, **more: Any) -> Any:
        if pending:
            pending.pop()()
        return function(*arguments, **more)

    pending = [move]
    with patch.context() as within:
        within.setattr(owner, name, moving)
        yield


def overtaken(
    patch: pytest.MonkeyPatch,
    chance: random.Random,
    seams: Sequence[tuple[Any, str]],
    change: Callable[[], None],
    make: Callable[[], Any],
    now: Callable[[], SourceRows],
) -> list[SourceRows]:
    """Make a pass that another one overtakes at a seam; return the rows of the source, `now`, that the result may be of."""
    newer, later = chance.random() < 0.8, chance.random() < 0.2
    accepted = list[SourceRows]()

    def another() -> None:
        if newer:
            change()
        make()
        accepted.append(now())
        if later:
            change()
            accepted.append(now())

    with moved(patch, *chance.choice(seams), another):
        make()
    return accepted or [now()]


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Outside of a Dagster run there is no instance that knows the lineage which a materialization draws."""
    patch.setattr(table_asset, "_drawn_lineage", lambda *_: None)


def share(tables: Sequence[IncrementalTable]) -> Mapping[str, int]:
    """How many passes were computed which way."""
    return sum((table.passes for table in tables), Counter[str]())
