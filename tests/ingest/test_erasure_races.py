"""Writers that have read before an erasure and commit after it: what they have read does not come back."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.commit_requests import CommitRequests
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.erasure_fence import fence_of, fencing
from ratify_lakehouse.delta.recorded_writes import recorded_writes
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.row_merge import merge_changes, overwrite, table_rows
from ratify_lakehouse.engines.duckdb.table_overwrite import overwrite_to_match
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, refuse_overtaken, versions_before
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ReadBeforeErasure
from ratify_lakehouse.ingest.file_source import APPEND, LOAD_COLUMNS, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS, ErasureKey
from ratify_lakehouse.ingest.load.parsed_batch import ParsedBatch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.declared_tables import create_declared, insert_rows
from tests.engines.live_tables import read_live

pytestmark = pytest.mark.server

PEOPLE = ("Ann", "Bö", "Cy")
COLUMNS = (Column("id", "bigint"), Column("who", "string", subject="person"))


@dataclass
class Erasing:
    """A catalog without Spark, and erasures of people from a table as `ratify erase` makes them."""

    catalog: UnityCatalog
    admin: httpx.Client
    duckdb: DuckDB

    def table(self, *more: Column) -> TableDeclaration:
        operations = APPEND if more else frozenset({"WRITE", "MERGE"})
        table = TableDeclaration("bronze", f"t_{uuid4().hex[:8]}", (*COLUMNS, *more), "of a test", Engine.DUCKDB, operations)
        create_declared(self.admin, table)
        return table

    def erase(self, who: str, table: TableDeclaration) -> None:
        """List the person and fence the table; the test looks at what comes after that."""
        key = ErasureKey.stored(self.duckdb.home, create=True)
        values = f"'person', '{key.digest('person', who)}', '{key.id}', 'me', now()::TIMESTAMPTZ, 'request'"
        insert_rows(self.admin, ERASED_SUBJECTS, f"VALUES ({values})")
        with closing(DuckDB(catalog=self.catalog)) as other:
            other.log(table.full_name("ratify")).commit(fencing, partitioned=True)

    def rows(self, table: TableDeclaration) -> list[tuple[Any, ...]]:
        return sorted(read_live(self.duckdb, f"SELECT id, who FROM uc.{table.table_name}"))


@pytest.fixture
def erasing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Erasing]:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    with catalog_here(tmp_path) as server, server.client() as admin:
        catalog = UnityCatalog(host=server.url, token=server.token)
        create_declared(admin, LANDED_FILES, ERASED_SUBJECTS)
        with closing(DuckDB(catalog=catalog)) as duckdb:
            yield Erasing(catalog, admin, duckdb)


@contextmanager
def before_the_commit(do: Callable[[], object]) -> Iterator[None]:
    """Do something after the first plan of a commit to a table, before it is proposed."""
    commit, waiting = DeltaLog.commit, [do]

    def interrupted(log: DeltaLog, plan: Callable[[Snapshot], Proposal], **options: Any) -> object:
        def planned(snapshot: Snapshot) -> Proposal:
            proposal = plan(snapshot)
            if waiting:
                waiting.pop()()
            return proposal

        return commit(log, planned if waiting else plan, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaLog, "commit", interrupted)
        yield


@contextmanager
def after_the_files_are_read(do: Callable[[], object]) -> Iterator[None]:
    parse, waiting = ParsedBatch.parse, [do]

    def interrupted(batch: ParsedBatch, files: Any) -> Any:
        found = parse(batch, files)
        if waiting:
            waiting.pop()()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParsedBatch, "parse", interrupted)
        yield


@pytest.mark.parametrize("moment", [after_the_files_are_read, before_the_commit])
def test_a_load_without_a_run_reads_its_files_again(erasing: Erasing, tmp_path: Path, moment: Any) -> None:
    table = erasing.table(*LOAD_COLUMNS)
    source, zone = Source("in/*.csv", ("id", "who"), table), LandingZone(url=str(tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,who\n1,Ann\n2,Cy\n")
    with moment(lambda: erasing.erase("Ann", table)):
        outcome = load_batch(erasing.duckdb, zone, source, zone.files(source.pattern))
    assert [(file.status, file.rows) for file in outcome.files] == [(Status.LOADED, 1)]
    assert outcome.dropped == 1
    assert erasing.rows(table) == [(2, "Cy")]


def test_writers_that_share_a_commit_and_those_on_other_machines(erasing: Erasing) -> None:
    """Only whose rows were read before is refused; nobody else commits a request that was posted before."""
    table = erasing.table()
    log = erasing.duckdb.log(table.full_name("ratify"))
    with erasing.duckdb.session() as before, erasing.duckdb.session() as after:
        before.fences.note(table.full_name("ratify"), log)
        snapshot = log.refresh()
        requests = CommitRequests(log.storage)
        requests.post(snapshot, ["theirs"], [], [])
        assert len(requests.waiting(snapshot, [], lambda _: set())) == 1
        erasing.erase("Ann", table)
        assert requests.waiting(log.refresh(), [], lambda _: set()) == []
        after.append(table, "SELECT 1, 'Bö'", ["one"])
        with pytest.raises(ReadBeforeErasure, match="try again"):
            before.append(table, "SELECT 2, 'Ann'", ["two"])
        before.fences.note(table.full_name("ratify"), log)
        before.append(table, "SELECT 3, 'Cy'", ["two"])
    assert erasing.rows(table) == [(1, "Bö"), (3, "Cy")]


def _merged(session: DuckDBSession, table: TableDeclaration) -> None:
    with table_rows(session, table) as stored:
        row = "1::BIGINT AS ratify_key_id, 1::BIGINT AS id, 'Ann' AS who, true AS ratify_present, false AS ratify_found"
        merge_changes(session, table, stored, f"SELECT {row}", "{}")


def _overwritten(session: DuckDBSession, table: TableDeclaration) -> None:
    with table_rows(session, table) as stored:
        overwrite(session, table, stored, "SELECT 1::BIGINT AS id, 'Ann' AS who", 1, "{}")


def _made_equal(session: DuckDBSession, table: TableDeclaration) -> None:
    session.con.execute("CREATE TEMP TABLE given AS SELECT 1::BIGINT AS id, 'Ann' AS who")
    overwrite_to_match(session, table, "given")


@pytest.mark.parametrize("write", [_merged, _overwritten, _made_equal])
def test_a_merge_that_has_read_before(erasing: Erasing, write: Callable[[DuckDBSession, TableDeclaration], None]) -> None:
    table = erasing.table()
    table = TableDeclaration("bronze", table.name, COLUMNS, "of a test", Engine.DUCKDB, table.operations, keys=("id",))
    with erasing.duckdb.session() as session:
        session.fences.note(table.full_name("ratify"), session.log(table))
        erasing.erase("Ann", table)
        with pytest.raises(ReadBeforeErasure):
            write(session, table)
    assert erasing.rows(table) == []


@pytest.mark.parametrize("refuse", [refuse_erased, refuse_overtaken])
def test_rows_of_spark_for_a_table_that_was_missing(erasing: Erasing, refuse: Callable[[Spark, str, int], None]) -> None:
    """The fence of the list of erased subjects stands for that of a table that the run creates; no session is needed."""
    spark, other = Spark(catalog=erasing.catalog), erasing.table()
    new = TableDeclaration("bronze", f"n_{uuid4().hex[:8]}", COLUMNS, "of a test", Engine.SPARK, frozenset({"MERGE"}))
    name = new.full_name("ratify")
    before = versions_before(spark, name, other.full_name("ratify"))
    assert before == {name: -1, other.full_name("ratify"): 0}
    create_declared(erasing.admin, new)
    refuse(spark, name, before[name])
    erasing.duckdb.log(ERASED_SUBJECTS.full_name("ratify")).commit(fencing, partitioned=True)
    with pytest.raises(ReadBeforeErasure):
        refuse(spark, name, before[name])
    refuse(spark, other.full_name("ratify"), 0)
    assert versions_before(spark, name) == {name: 0}
    refuse(spark, name, 0)


def test_a_table_that_was_computed_as_a_whole_names_its_inputs(erasing: Erasing) -> None:
    """By the lineage of its columns; so an erasure knows them when nothing declares the table any more."""
    table = erasing.table()
    whole = replace(table, columns=(COLUMNS[0], replace(COLUMNS[1], sources=("silver.orders.customer",))))
    log = erasing.duckdb.log(table.full_name("ratify"))
    with erasing.duckdb.session() as session:
        _made_equal(session, whole)
    found = recorded_writes(log, log.refresh())
    assert found
    assert found.inputs == {"silver.orders"}


def test_a_fence_changes_no_row_and_is_a_change_of_a_property(erasing: Erasing) -> None:
    table = erasing.table()
    insert_rows(erasing.admin, table, "VALUES (1, 'Ann')")
    log = erasing.duckdb.log(table.full_name("ratify"))
    assert fence_of(log.refresh()) == ""
    versions = [log.commit(fencing, partitioned=True).version for _ in range(2)]
    snapshot = log.refresh()
    commits = [*TableLog(log, snapshot).commits()]
    assert [commit.version for commit in commits if commit.is_fence] == versions[::-1]
    assert fence_of(snapshot) == snapshot.metadata["configuration"]["ratify.erased"] != ""
    assert erasing.rows(table) == [(1, "Ann")]


@pytest.mark.parametrize("seed", range(4))
def test_loads_and_erasures_at_random(erasing: Erasing, tmp_path: Path, seed: int) -> None:
    """No load of any interleaving brings a person back; everybody else's rows are there once."""
    chance = random.Random(seed)  # noqa: S311
    table = erasing.table(*LOAD_COLUMNS)
    source, zone = Source("in/*.csv", ("id", "who"), table), LandingZone(url=str(tmp_path))
    (tmp_path / "in").mkdir()
    erased, landed, number = set[str](), dict[int, str](), 0
    for step in range(5):
        rows = list[str]()
        for _ in range(chance.randrange(1, 4)):
            number += 1
            landed[number] = chance.choice(PEOPLE)
            rows.append(f"{number},{landed[number]}")
        (tmp_path / "in" / f"{step}.csv").write_text("id,who\n" + "\n".join(rows) + "\n")
        files = [file for file in zone.files(source.pattern) if file.path == f"in/{step}.csv"]
        there = {id_ for id_, _ in erasing.rows(table)}
        if chance.random() < 0.6:
            who = chance.choice(PEOPLE)
            moment = chance.choice([after_the_files_are_read, before_the_commit])
            with moment(lambda who=who: erasing.erase(who, table)):
                load_batch(erasing.duckdb, zone, source, files)
            erased.add(who)
        else:
            load_batch(erasing.duckdb, zone, source, files)
        new = [(id_, who) for id_, who in erasing.rows(table) if id_ not in there]
        mine = [int(row.partition(",")[0]) for row in rows]
        assert new == [(id_, landed[id_]) for id_ in mine if landed[id_] not in erased], (seed, step)
