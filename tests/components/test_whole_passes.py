"""Two passes of a table at once, of which one reads older inputs, in any order: the newer ones win.

Those of the strategy `full`, and how the strategies that go on from a record follow their inputs.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg
import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components import query_engines
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK
from ratify_lakehouse.components.query_engines import DuckDBQueries
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.pass_results import PassResult, materialize_passes, materialize_whole
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import replaced_after
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import Overtaken, ReadBeforeErasure
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.begun_tables import begin
from tests.components.incremental_tables import SourceRows, moved, overtaken, without_pictures
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import Lakehouse, pairs
from tests.engines.quick_tables import QuickTables

pytestmark = pytest.mark.server

_SEAMS = ((DuckDBQueries, "validated"), (query_engines, "overwrite_to_match"), (DeltaLog, "commit"))
"""Where another pass comes in between: before the inputs are read, before the table is compared, before the commit."""
_QUERY = "SELECT id, CAST(v AS INT) AS n FROM bronze.{} WHERE v IS NOT NULL"

Materialize = Callable[[Spark, DuckDBSession, ValidatedQuery], Iterator[PassResult]]


def declared(source: str, engine: Engine) -> ValidatedQuery:
    """A table with the rows of a source; by DuckDB those whose number is below 3, and the others are in quarantine."""
    by_duckdb = engine is Engine.DUCKDB
    table = pairs(
        engine, name=f"of_{source}", layer="silver", columns=(Column("id", "bigint"), Column("n", "int")), keys=("id",)
    )
    query = TableQuery.parsed(_QUERY.format(source), "duckdb" if by_duckdb else "databricks", "t")
    rules = (Expectation("small", "n < 3", Action.QUARANTINE),) if by_duckdb else ()
    expectations = Expectations(rules, identity=("id",), dialect=DUCKDB if by_duckdb else SPARK)
    return ValidatedQuery(table, query, expectations)


def going_on(spark: Spark, session: DuckDBSession, table: ValidatedQuery) -> Iterator[PassResult]:
    """As the strategies do that follow changes; the passes are those of DuckDB, of all rows."""
    return materialize_passes(spark, table, lambda: DuckDBQueries(session, spark, *table.written), follows_inputs=True)


class WholeTable:
    """A table of DuckDB and its quarantine, beside what they are to be. No Spark is opened: the tables are there."""

    def __init__(self, shared: "Shared", chance: random.Random, materialize: Materialize = materialize_whole) -> None:
        self.shared, self.chance, source = shared, chance, pairs(Engine.SPARK)
        self.materialize = materialize
        self.table, self.source = declared(source.name, Engine.DUCKDB), source.table_name
        create_declared(shared.admin, source, *self.table.written)
        self.spark = Spark(catalog=shared.catalog)
        # All rows that the source has had, and those that each version of the table was made of.
        self.sources, self.made, self.reported = list[SourceRows](), list[SourceRows](), list[int]()

    def change(self) -> None:
        """Other rows of the source, or those that it had before."""
        rows = [(id_, self.chance.randint(1, 4)) for id_ in range(1, self.chance.choice((2, 2, 3)))]
        values = ", ".join(f"({id_}, '{n}')" for id_, n in rows)
        self.sources.append(rows)
        self.shared.others.run(f"INSERT OVERWRITE ratify.{self.source} VALUES {values}")

    def make(self) -> None:
        """A pass."""
        duckdb = self.shared.engines.pop()
        with duckdb.session() as session:
            for made in self.materialize(self.spark, session, self.table):
                if isinstance(made, dg.MaterializeResult) and made.asset_key and made.asset_key.path[-1] == self.name:
                    metadata: Mapping[str, Any] = made.metadata or {}
                    self.reported += metadata[COMMITS].data["versions"]
        self.shared.engines.append(duckdb)

    def at_once(self, patch: pytest.MonkeyPatch) -> list[SourceRows]:
        """A pass that another one overtakes at a seam; return the rows of the source that the tables may be of."""
        return overtaken(patch, self.chance, _SEAMS, self.change, self.make, lambda: self.sources[-1])

    def note_versions(self, patch: pytest.MonkeyPatch) -> None:
        """Note what each version of the table is made of."""
        overwrite = query_engines.overwrite_to_match

        def noting(session: DuckDBSession, declaration: TableDeclaration, relation: str, *more: Any) -> WriteResult:
            found = overwrite(session, declaration, relation, *more)
            if found.commit and declaration.name == self.name:
                self.made.append(session.rows(f"SELECT id, n FROM {relation} ORDER BY id"))
            return found

        patch.setattr(query_engines, "overwrite_to_match", noting)

    def goes_back(self) -> bool:
        """Whether a version of the table is of older rows of the source than the one before it."""
        number = 0
        for rows in self.made:
            newer = [at for at, source in enumerate(self.sources) if at >= number and expected(source)[0] == rows]
            if not newer:
                return True
            number = newer[0]
        return False

    @property
    def name(self) -> str:
        return self.table.declaration.name

    def stored(self) -> tuple[SourceRows, list[str]]:
        """The rows of the table, and those in quarantine."""
        with self.shared.engines[0].session() as session:
            session.attach()
            rows = session.rows(f"SELECT id, n FROM uc.silver.{self.name} ORDER BY id")
            return rows, [row for (row,) in session.rows(f"SELECT row FROM uc.silver.{self.name}_quarantine ORDER BY row")]


def expected(rows: SourceRows) -> tuple[SourceRows, list[str]]:
    return [row for row in rows if row[1] < 3], [f'{{"id":{id_},"n":{n}}}' for id_, n in rows if n >= 3]


@dataclass(frozen=True)
class Shared:
    """A catalog, and engines of DuckDB. Of two passes at once, each is a process, and so is who changes the source."""

    catalog: UnityCatalog
    admin: httpx.Client
    engines: list[DuckDB]
    others: QuickTables


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with catalog_here(tmp_path_factory.mktemp("catalog")) as address, address.client() as admin, ExitStack() as stack:
        catalog = UnityCatalog(host=address.url, token=address.token)
        one, two, other = (stack.enter_context(closing(DuckDB(catalog=catalog, threads=1))) for _ in range(3))
        yield Shared(catalog, admin, [one, two], QuickTables(other))


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_older_inputs_do_not_win(shared: Shared, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    without_pictures(monkeypatch)
    table = WholeTable(shared, random.Random(seed))  # noqa: S311 rows, not keys
    table.note_versions(monkeypatch)
    table.change()
    table.make()
    for _ in range(4):
        if table.chance.random() < 0.3:
            table.change()
        accepted = table.at_once(monkeypatch)
        assert table.stored() in [expected(rows) for rows in accepted]
    assert not table.goes_back()
    # Each version was reported by the pass that made it.
    newest = table.spark.catalog.version(table.table.declaration.full_name("ratify"))
    assert sorted(table.reported) == list(range(1, newest + 1))


@pytest.mark.parametrize("materialize", [materialize_whole, going_on])
def test_a_pass_that_changed_nothing_is_not_undone(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, materialize: Materialize
) -> None:
    """It leaves no commit: the source was changed, and changed back, and the first pass has read it in between."""
    without_pictures(monkeypatch)
    table = WholeTable(shared, random.Random(1), materialize)  # noqa: S311 rows, not keys
    numbers = iter([1, 2, 1])
    monkeypatch.setattr(table.chance, "choice", lambda _: 2)
    monkeypatch.setattr(table.chance, "randint", lambda *_: next(numbers))
    table.change()
    table.make()
    table.change()

    def another() -> None:
        table.change()
        table.make()

    with moved(monkeypatch, query_engines, "overwrite_to_match", another):
        table.make()
    assert table.stored() == ([(1, 1)], [])


def test_a_pass_follows_the_version_before_its_inputs(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """So in the strategies that go on from a record: what another pass commits while the inputs are found is newer."""
    without_pictures(monkeypatch)
    table = WholeTable(shared, random.Random(2))  # noqa: S311 rows, not keys
    table.change()
    one = ChangedRows(table.spark, table.table)
    table.make()
    assert one.record(table.table.declaration).after == 0


@pytest.mark.stack
@pytest.mark.usefixtures("no_previews")
def test_older_inputs_do_not_win_by_spark(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    source = lake.create(pairs(Engine.SPARK), "VALUES (1, '1'), (2, '2')")
    table = declared(source.name, Engine.SPARK)
    lake.create(table.declaration)

    def another(rows: str, more: str, after: int) -> None:
        """The source gets other rows, and another pass, which has read them, commits those that the table lacks."""
        lake.quick(f"INSERT OVERWRITE ratify.{source.table_name} VALUES {rows}")
        overtakes(lake, table.declaration, f"VALUES {more}", after)

    with (
        # Before the look: the first pass commits nothing, and another one begins.
        moved(monkeypatch, Spark, "merge_to_match", partial(another, "(3, '1')", "(3, 1)", 0)),
        # After the look of that one, where Spark commits the older rows nevertheless: the run reports that version, too.
        moved(monkeypatch, Spark, "partitionable", partial(another, "(3, '1'), (4, '2')", "(4, 2)", 1)),
    ):
        (result,) = (each for each in materialize_whole(lake.spark, None, table) if isinstance(each, dg.MaterializeResult))
    metadata: Mapping[str, Any] = result.metadata or {}
    assert (lake.stored(table.declaration), lake.version(table.declaration)) == ([(3, 1), (4, 2)], 4)
    assert metadata[COMMITS].data["versions"] == [3, 4]


def overtakes(lake: Lakehouse, table: TableDeclaration, rows: str, after: int) -> None:
    """Commit what another pass over a table that had a version adds to it, with its record."""
    lake.insert(table, rows, userMetadata=replaced_after(after, table.computed_from))


@pytest.mark.stack
def test_a_merge_of_spark_that_is_overtaken_after_the_look_is_refused(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No conflict says so: the other commit is there when the MERGE begins."""
    table = lake.create(pairs(Engine.SPARK, keys=("id",)))

    def merge(value: str) -> None:
        rows = lake.spark.sql(f"SELECT 1L AS id, '{value}' AS v")
        lake.spark.merge_to_match(table, lambda: rows, after=0)

    def erase() -> None:
        lake.duckdb.log(lake.full(table)).commit(fencing, partitioned=True)

    # So does what an erasure has fenced by then: a run reports the version, as it does that of an older pass.
    with moved(monkeypatch, Spark, "_committed", erase), pytest.raises(ReadBeforeErasure, match="2 has them") as fenced:
        merge("before the erasure")
    assert fenced.value.committed == (lake.full(table), lake.version(table)) == (lake.full(table), 2)
    table = lake.create(pairs(Engine.SPARK, keys=("id",)))
    newer = partial(overtakes, lake, table, "VALUES (2, 'newer')", 0)
    with moved(monkeypatch, Spark, "partitionable", newer), pytest.raises(Overtaken) as overtaken:
        merge("older")
    assert overtaken.value.committed == (lake.full(table), 2)


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.usefixtures("no_previews")
def test_a_pass_that_changed_nothing_is_not_undone_by_spark(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by DuckDB, of the strategy `incremental`."""
    without_pictures(monkeypatch)
    source = lake.create(pairs(Engine.SPARK), "VALUES (1, '1'), (2, '2')")
    table, name = declared(source.name, Engine.SPARK), f"ratify.{source.table_name}"

    def made() -> list[int]:
        (result,) = (each for each in materialize_changes(lake.spark, table) if isinstance(each, dg.MaterializeResult))
        metadata: Mapping[str, Any] = result.metadata or {}
        return metadata[COMMITS].data["versions"]

    def another() -> None:
        lake.quick(f"INSERT OVERWRITE {name} VALUES (1, '1'), (2, '2')")
        assert made() == []

    begin(lake, table)
    lake.quick(f"INSERT OVERWRITE {name} VALUES (1, '1'), (2, '9')")
    with moved(monkeypatch, Spark, "merge_changes", another):
        assert made() == [2, 3]
    assert lake.stored(table.declaration) == [(1, 1), (2, 2)]
