"""An erasure between the steps of runs, at random: no row of the person is left afterwards that the report does not name.

Without Spark: a run reads one table and adds what it has read to another one, which it creates where it is missing; the
erasure deletes rows by DuckDB. Its order, its fences and its searches are those of `ratify erase`.
"""

import json
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.definitions.erasure_plan import TableHolding
from ratify_lakehouse.definitions.subject_erasure import SubjectErasure
from ratify_lakehouse.definitions.subject_survey import Subject, SubjectSurvey
from ratify_lakehouse.delta.commit_history import Commit, commit_from_actions
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.row_merge import overwrite, table_rows
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ReadBeforeErasure
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.components.declared_projects import Project, project
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.declared_tables import create_declared, insert_rows
from tests.engines.live_tables import read_live

pytestmark = pytest.mark.server

__all__ = ["project"]

WHO = "Ann"
DECLARATIONS = {
    ("bronze", "orders"): """
type: ratify_lakehouse.LandedFiles
attributes:
  description: Orders
  pattern: shop/*.csv
  columns: [{name: customer, pii: true, subject: person}]
""",
    ("silver", "orders"): "type: ratify_lakehouse.SqlTable\nattributes: {description: Orders, keys: [id]}\n",
    ("gold", "orders"): "type: ratify_lakehouse.SqlTable\nattributes: {description: Orders, keys: [id]}\n",
}
QUERIES = {
    ("silver", "orders"): "SELECT id, customer FROM bronze.orders",
    ("gold", "orders"): "SELECT id, customer FROM silver.orders",
}
READS = {
    "silver.orders": "bronze.orders",
    "gold.orders": "silver.orders",
    # Of no declaration: commits record what the first is computed from.
    "old.known": "silver.orders",
    "old.copied": "bronze.orders",
    "old.chained": "old.known",
}
"""What is read for each table but the first."""


class ByDuckDB(SubjectErasure):
    """An erasure whose statements are not Spark's."""

    def _remember(self) -> None:
        values = "'person', 'd', 'k', 'me', now()::TIMESTAMPTZ, 'request'"
        with self.survey.duckdb.session() as session:
            session.append(ERASED_SUBJECTS, f"SELECT {values}", [uuid4().hex])

    def _commit(self, table: TableHolding) -> Commit | None:
        _, schema, name = table.full_name.split(".")
        with self.survey.duckdb.session() as session:
            declared = declaration(schema, name)
            with table_rows(session, declared) as stored:
                rows = f"SELECT {', '.join(declared.column_names)} FROM ({stored.select()}) WHERE customer <> '{WHO}'"
                left = session.con.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0]
                version = overwrite(session, declared, stored, rows, left, "{}")
            return commit_from_actions(version, session.log(declared).actions(version))

    def _removed(self, table: TableHolding) -> int:
        return 0


def declaration(schema: str, name: str) -> TableDeclaration:
    more = LOAD_COLUMNS if schema.startswith("bronze") else ()
    columns = (Column("id", "bigint"), Column("customer", "string"), *more)
    return TableDeclaration(schema, name, columns, "of a test", Engine.DUCKDB, frozenset({"WRITE"}))


@dataclass
class RunMidway:
    """A run that has read, and has not written yet."""

    table: str
    session: DuckDBSession
    rows: list[tuple[Any, ...]]


@dataclass
class Runs:
    """The runs beside an erasure, on another machine."""

    chance: random.Random
    project: Project
    admin: httpx.Client
    duckdb: DuckDB
    stack: ExitStack
    reading: list[RunMidway] = field(default_factory=list[RunMidway])
    refused: list[str] = field(default_factory=list[str])

    def declared(self, table: str) -> TableDeclaration:
        schema, name = table.split(".")
        return declaration(self.project.schema(schema), name)

    def exists(self, table: str) -> bool:
        made = self.declared(table)
        return self.admin.get(f"/tables/ratify.{made.table_name}").status_code == 200

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        if not self.exists(table):
            return []
        return read_live(self.duckdb, f"SELECT id, customer FROM uc.{self.declared(table).table_name}")

    def begin(self, table: str) -> None:
        session = self.stack.enter_context(self.duckdb.session())
        target = self.declared(table)
        session.fences.note(target.full_name("ratify"), session.log(target))
        self.reading.append(RunMidway(table, session, self.rows(READS[table])))

    def end(self, run: RunMidway) -> None:
        self.reading.remove(run)
        target = self.declared(run.table)
        if not self.exists(run.table):
            create_declared(self.admin, target)
        values = ", ".join(f"({id_}, '{customer}')" for id_, customer in run.rows) or "(0, 'nobody')"
        try:
            run.session.append(target, f"VALUES {values}", [uuid4().hex])
        except ReadBeforeErasure:
            self.refused.append(run.table)

    def step(self) -> None:
        """Begin runs, or end some that have begun."""
        if self.chance.random() < 0.6:
            if self.reading and self.chance.random() < 0.5:
                self.end(self.chance.choice(self.reading))
            else:
                self.begin(self.chance.choice([*READS]))


@contextmanager
def around_commits(step: Callable[[], object]) -> Iterator[None]:
    """Take a step before and after each commit, but for those of the steps themselves."""
    commit, stepping = DeltaLog.commit, list[bool]()

    def between() -> None:
        if not stepping:
            stepping.append(True)
            step()
            stepping.clear()

    def interrupted(log: DeltaLog, *given: Any, **options: Any) -> object:
        between()
        made = commit(log, *given, **options)
        between()
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaLog, "commit", interrupted)
        yield


def known(table: str, there: Collection[str]) -> bool:
    """Whether an erasure knows by which column a person is found in a table: it and what it is read from were there."""
    if table == "bronze.orders":
        return True
    return table != "old.copied" and table in there and known(READS[table], there)


@pytest.fixture
def runs(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[Runs]:
    (tmp_path / "landing").mkdir()
    monkeypatch.setenv("LANDING_URL", str(tmp_path / "landing"))
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    for table, text in DECLARATIONS.items():
        project.write(*table, text, QUERIES.get(table, ""))
    chance = random.Random(seed)  # noqa: S311
    with catalog_here(tmp_path) as server, server.client() as admin, ExitStack() as stack:
        monkeypatch.setenv("UNITY_HOST", server.url)
        monkeypatch.setenv("UNITY_TOKEN", server.token)
        create_declared(admin, ERASED_SUBJECTS)
        duckdb = stack.enter_context(closing(DuckDB(catalog=UnityCatalog(host=server.url, token=server.token))))
        runs = Runs(chance, project, admin, duckdb, stack)
        nulls = ", NULL" * len(LOAD_COLUMNS)
        create_declared(admin, runs.declared("bronze.orders"))
        insert_rows(admin, runs.declared("bronze.orders"), f"VALUES (1, '{WHO}'{nulls}), (2, 'Bö'{nulls}), (3, 'Cy'{nulls})")
        for table, source in READS.items():
            if chance.random() < 0.6:
                create_declared(admin, runs.declared(table))
                record = {"inputs": {runs.declared(source).full_name("ratify"): {"table_id": "t", "version": 1}}}
                mark = {} if table == "old.copied" else {"userMetadata": f"ratify {json.dumps(record)}"}
                who = chance.choice([WHO, "Di"])
                insert_rows(admin, runs.declared(table), f"VALUES (1, '{who}'), (2, 'Bö')", **mark)
        yield runs


@pytest.mark.parametrize("seed", [1, 7, 9])
def test_no_row_comes_back_that_the_report_does_not_name(runs: Runs, tmp_path: Path, seed: int) -> None:
    there = [table for table in READS if runs.exists(table)]
    for table in runs.chance.sample([*READS], 3):
        runs.begin(table)
    catalog = runs.duckdb.catalog
    with closing(DuckDB(catalog=catalog)) as duckdb, dg.DagsterInstance.ephemeral() as instance:
        survey = SubjectSurvey(catalog, duckdb, runs.project.tables, LandingZone(url=str(tmp_path / "landing")))
        erasure = ByDuckDB(Subject("person", WHO), survey, Spark(catalog=catalog), instance, "a request", all_rows=True)
        with around_commits(runs.step):
            done = erasure.run()
    begun_before = [run.table for run in runs.reading]
    while runs.reading:
        runs.end(runs.reading[0])
    named = {place.partition(".")[2] for place in done.after.not_erased()}
    left = {table for table in ("bronze.orders", *READS) if any(who == WHO for _, who in runs.rows(table))}
    assert {runs.declared(table).table_name for table in left} <= named, (seed, begun_before, runs.refused)
    # What the commits record is enough to delete rows; what nothing is known of, is named with what wrote it.
    assert left.isdisjoint({table for table in there if known(table, there)}), seed
    for place in done.after.remaining(0):
        if place.what.endswith("row") and "old" in place.place:
            assert "Ratify wrote it" in place.why
    # A run that begins now is not refused.
    refused = len(runs.refused)
    for table in READS:
        runs.begin(table)
        runs.end(runs.reading[-1])
    assert len(runs.refused) == refused
