"""The ledger's faults that an audit found, each as it was found; `test_ledger_model` finds their like."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.snapshot import SnapshotState
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.row_replacement import replace_rows
from ratify_lakehouse.errors import LedgerIncomplete
from ratify_lakehouse.ingest.file_source import CsvDialect, Rewrite, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.ledger.file_states import HeldContents
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.ledger.ledger_queries import refused_entries, table_entries, waiting
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import CatalogAddress
from tests.engines.declared_tables import create_declared
from tests.engines.live_tables import read_live
from tests.ingest.load_seams import LoadKilled, dying_at
from tests.ingest.test_batch_loading import new_source

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogAddress]:
    with catalog_here(tmp_path_factory.mktemp("ledger-faults")) as server:
        with server.client() as client:
            create_declared(client, LANDED_FILES)
        yield server


class Inbox:
    """A landing zone of one source, and its bronze table."""

    def __init__(self, server: CatalogAddress, root: Path, policy: Rewrite) -> None:
        self.server, self.root = server, root
        self.zone = LandingZone(url=str(root))
        self.source = replace(new_source("code", "name"), on_rewrite=policy)
        self.folder = self.source.pattern.partition("/")[0]
        (root / self.folder).mkdir()
        with server.client() as client:
            create_declared(client, self.source.table)

    def engine(self) -> DuckDB:
        """That of a new process."""
        return DuckDB(catalog=UnityCatalog(host=self.server.url, token=self.server.token), threads=1)

    def put(self, name: str, *codes: str, stamp: int = 0) -> None:
        path = self.root / self.folder / name
        path.write_text("code,name\n" + "".join(f"{code},x\n" for code in codes))
        if stamp:
            os.utime(path, (stamp, stamp))

    def load(self, *names: str, into: Source | None = None) -> dict[str, Status]:
        source = into or self.source
        paths = [f"{self.folder}/{name}" for name in names]
        engine = self.engine()
        files = self.zone.look(paths) if names else waiting(engine, self.zone, source)
        outcome = load_batch(engine, self.zone, source, files)
        return {Path(file.path).name: file.status for file in outcome.files}

    def waiting(self) -> list[str]:
        return sorted(Path(file.path).name for file in waiting(self.engine(), self.zone, self.source))

    def rows(self) -> list[tuple[str, str]]:
        """Code and file of each row."""
        query = f"SELECT code, parse_filename(_source_file) FROM uc.{self.source.table_name} ORDER BY ALL"
        return read_live(self.engine(), query)

    def held(self) -> HeldContents:
        with self.engine().session() as session:
            return table_entries(session, self.source).held


@pytest.fixture
def inbox(server: CatalogAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Inbox:
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "LANDING_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    return Inbox(server, tmp_path, getattr(request, "param", Rewrite.REFUSE))


def killed_before_its_entry(inbox: Inbox, *names: str) -> None:
    with dying_at("record", 1, inbox.source.table.name, None), suppress(LoadKilled):
        inbox.load(*names)


def test_a_producer_overwrites_one_name_daily_and_keeps_a_copy(inbox: Inbox) -> None:
    for day in range(1, 4):
        inbox.put("current.csv", f"day {day}", stamp=day)
        inbox.put(f"report-{day}.csv", f"day {day}", stamp=day)
        inbox.load()
    assert [code for code, _ in inbox.rows()] == ["day 1", "day 2", "day 3"]


def test_a_file_that_was_loaded_into_the_wrong_table_first(inbox: Inbox, tmp_path: Path) -> None:
    other = replace(inbox.source, table=new_source("code", "name").table, csv=CsvDialect(delimiter=";"))
    with inbox.server.client() as client:
        create_declared(client, other.table)
    inbox.put("1.csv", "AA")
    assert inbox.load("1.csv", into=other) == {"1.csv": Status.REFUSED}
    assert inbox.load("1.csv") == {"1.csv": Status.LOADED}
    assert [entry.path for entry in inbox.held()] == [f"{inbox.folder}/1.csv"]
    assert inbox.waiting() == []


@pytest.mark.parametrize("inbox", Rewrite, indirect=True)
def test_the_same_bytes_after_the_logs_retention(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotState, "__init__", partialmethod(SnapshotState.__init__, forget_at=0))
    monkeypatch.setattr(SnapshotState, "txns", property(lambda _: {}, lambda *_: None), raising=False)
    inbox.put("1.csv", "AA", stamp=1)
    inbox.load()
    inbox.put("1.csv", "AA", stamp=2)
    assert inbox.load() == {"1.csv": Status.REPEATED}
    inbox.put("1.csv", "BB", stamp=3)
    inbox.load()
    wanted = {Rewrite.REFUSE: ["AA"], Rewrite.APPEND: ["AA", "BB"], Rewrite.REPLACE: ["BB"]}
    assert [code for code, _ in inbox.rows()] == wanted[inbox.source.on_rewrite]


@pytest.mark.parametrize("inbox", [Rewrite.REPLACE], indirect=True)
def test_a_replacement_that_dies_before_its_entry_blocks_nothing(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA", stamp=1)
    inbox.load()
    inbox.put("1.csv", "BB", stamp=2)
    killed_before_its_entry(inbox, "1.csv")
    inbox.put("1.csv", "CC", stamp=3)
    inbox.put("2.csv", "DD")
    assert inbox.load() == {"1.csv": Status.LOADED, "2.csv": Status.LOADED}
    assert inbox.rows() == [("CC", "1.csv"), ("DD", "2.csv")]
    assert inbox.waiting() == []


@pytest.mark.parametrize("inbox", [Rewrite.REFUSE, Rewrite.REPLACE], indirect=True)
def test_a_load_that_dies_before_its_entry_and_a_rewrite(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA", stamp=1)
    killed_before_its_entry(inbox, "1.csv")
    inbox.put("1.csv", "BB", stamp=2)
    replaces = inbox.source.on_rewrite is Rewrite.REPLACE
    assert inbox.load() == {"1.csv": Status.LOADED if replaces else Status.REFUSED}
    assert inbox.rows() == [("BB" if replaces else "AA", "1.csv")]
    assert len(list(inbox.held())) == 1


@pytest.mark.parametrize("inbox", [Rewrite.REPLACE], indirect=True)
def test_of_two_names_with_equal_bytes_one_is_replaced(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA", stamp=1)
    inbox.put("2.csv", "AA", stamp=1)
    assert inbox.load() == {"1.csv": Status.LOADED, "2.csv": Status.REPEATED}
    inbox.put("1.csv", "BB", stamp=2)
    inbox.load()
    inbox.load()
    assert inbox.rows() == [("AA", "2.csv"), ("BB", "1.csv")]
    assert inbox.waiting() == []


@pytest.mark.parametrize("inbox", Rewrite, indirect=True)
def test_a_loaded_name_gets_the_bytes_of_another_loaded_file(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA", stamp=1)
    inbox.put("2.csv", "BB", stamp=1)
    inbox.load()
    inbox.put("1.csv", "BB", stamp=2)
    assert inbox.load() == {"1.csv": Status.REPEATED}
    replaces = inbox.source.on_rewrite is Rewrite.REPLACE
    assert inbox.rows() == [("BB", "2.csv")] if replaces else [("AA", "1.csv"), ("BB", "2.csv")]
    assert len(list(inbox.held())) == len(inbox.rows())
    assert inbox.waiting() == []


@pytest.mark.parametrize("lands", [True, False])
def test_a_repair_that_dies_before_the_ledger(lands: bool, inbox: Inbox) -> None:
    inbox.put("1.csv", "AA", stamp=1)
    inbox.load()
    log = inbox.engine().log(inbox.source.table.full_name("ratify"))
    (file,) = log.files(log.refresh())
    log.storage.remove(file.path)
    assert repair(log)
    # Another file may land before, or none.
    if lands:
        inbox.put("2.csv", "BB")
        assert inbox.load("2.csv") == {"2.csv": Status.LOADED}
    assert inbox.waiting() == ["1.csv"]
    inbox.load()
    assert inbox.rows() == [("AA", "1.csv"), *([("BB", "2.csv")] if lands else [])]
    assert inbox.waiting() == []


def test_a_refused_file_is_loaded_once_its_declaration_is_corrected(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA")
    wrong, right = replace(inbox.source, csv=CsvDialect(delimiter=";")), inbox.source
    inbox.source = wrong
    assert inbox.load() == {"1.csv": Status.REFUSED}
    assert inbox.waiting() == []
    inbox.source = right
    assert inbox.load() == {"1.csv": Status.LOADED}
    assert inbox.waiting() == []


def test_a_killed_load_is_loaded_though_it_could_not_be_read_any_more(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA")
    with suppress(LoadKilled), dying_at("answer", 1, inbox.source.table.name, None):
        inbox.load()
    inbox.source = replace(inbox.source, csv=CsvDialect(delimiter=";"))
    assert inbox.load() == {"1.csv": Status.LOADED}
    assert inbox.rows() == [("AA", "1.csv")]
    with inbox.engine().session() as session:
        assert refused_entries(session, inbox.source) == []
    assert inbox.waiting() == []


def test_a_file_that_lands_again_after_a_killed_load_is_settled(inbox: Inbox) -> None:
    """The same bytes under a new modification time: the entry that is copied is that of the earlier version of the file."""
    inbox.put("1.csv", "AA")
    with suppress(LoadKilled), dying_at("answer", 1, inbox.source.table.name, None):
        inbox.load()
    inbox.put("1.csv", "AA", stamp=1)
    assert inbox.load() == {"1.csv": Status.REPEATED}
    assert inbox.rows() == [("AA", "1.csv")]
    assert inbox.waiting() == []


def test_a_table_that_is_created_again_gets_its_files_again(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA")
    inbox.load()
    with inbox.server.client() as client:
        client.delete(f"/tables/ratify.{inbox.source.table_name}").raise_for_status()
        create_declared(client, inbox.source.table)
    assert inbox.waiting() == ["1.csv"]
    assert inbox.load() == {"1.csv": Status.LOADED}
    assert inbox.rows() == [("AA", "1.csv")]


def test_a_damaged_index_is_built_again(inbox: Inbox, tmp_path: Path) -> None:
    inbox.put("1.csv", "AA")
    inbox.load()
    (index,) = (tmp_path / "home" / "ledger").glob("*.sqlite")
    for file in (tmp_path / "home" / "ledger").iterdir():
        file.write_bytes(b"rubbish" * 1000)
    assert index.exists()
    assert inbox.waiting() == []
    with inbox.engine().session() as session:
        FileLedger(session, session.log(inbox.source.table), inbox.source.table_name).record([])
    assert [entry.path for entry in inbox.held()] == [f"{inbox.folder}/1.csv"]


def test_a_ledger_whose_rows_were_deleted_is_an_error(inbox: Inbox) -> None:
    inbox.put("1.csv", "AA")
    inbox.load()
    engine, types = inbox.engine(), LANDED_FILES.column_types
    with engine.session() as session:
        none = Staged(inbox.root / "none.parquet", 0, 0, (), types, {})
        replace_rows(session.con, session.log(LANDED_FILES), none, "path", f"{inbox.folder}/1.csv")
    inbox.put("2.csv", "BB")
    with pytest.raises(LedgerIncomplete, match="RESTORE"):
        inbox.load("2.csv")
