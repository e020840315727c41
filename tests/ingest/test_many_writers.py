"""Many writers on one table: each file's rows once, whatever is delivered twice, killed, or never answered."""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.checks.landed_file_checks import files_loaded_once
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome, load_batch
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.settings import LAYERS
from tests.components.sparkless import Sparkless, sparkless_on
from tests.embedded.catalog.harness import CatalogProcess
from tests.engines.faulty_network import CUT, Moment, faulty_network
from tests.engines.lakehouse import Lakehouse, another_catalog
from tests.ingest.loading_writers import Writer, source_of

pytestmark = [pytest.mark.stack, pytest.mark.locks("ledger of files")]


class Files:
    """Landed files of a table of their own; `amounts` are what is in them, by path."""

    def __init__(self, lake: Lakehouse | Sparkless, root: Path, seed: int = 0) -> None:
        self.lake, self.root = lake, root
        self.source = source_of(f"m_{uuid4().hex[:10]}")
        self.zone = LandingZone(url=str(root))
        self.chance = random.Random(seed)  # noqa: S311 what is in files, not keys
        self.amounts = dict[str, list[int]]()
        (root / self.source.table.name).mkdir(parents=True)
        lake.spark.ensure_table(LANDED_FILES)
        lake.spark.ensure_table(self.source.table)

    def land(self, number: int) -> str:
        """Land a file with up to thirty rows, whose ids no other file has."""
        amounts = [self.chance.randint(1, 1000) for _ in range(self.chance.randint(1, 30))]
        path = f"{self.source.table.name}/{number:05d}.csv"
        lines = [f"{number}-{row},{amount}" for row, amount in enumerate(amounts)]
        (self.root / path).write_text("\n".join(["id,amount", *lines, ""]))
        self.amounts[path] = amounts
        return path

    def land_again(self, path: str) -> str:
        """Land the same bytes under another name."""
        again = path.replace(".csv", "-again.csv")
        shutil.copyfile(self.root / path, self.root / again)
        return again

    def listed(self, *paths: str) -> list[LandedFile]:
        return [file for file in self.zone.files(self.source.pattern) if not paths or file.path in paths]

    def load(self, engine: DuckDB, *paths: str) -> BatchOutcome:
        return load_batch(engine, self.zone, self.source, self.listed(*paths))

    def check(self) -> None:
        """Every file's rows are there exactly once, by count and by sum, for both engines; and the ledger agrees."""
        wanted = {(len(amounts), sum(amounts)) for amounts in [[a for each in self.amounts.values() for a in each]]}
        table = f"bronze.{self.source.table.name}"
        query = "SELECT count(*), sum(CAST(amount AS BIGINT)), count(DISTINCT id) FROM"
        with self.lake.duckdb.session() as session:
            session.attach()
            by_duckdb = session.rows(f"{query} uc.{table}")[0]
            ledger = session.rows(
                "SELECT status, count(*), sum(rows) FROM uc.ops.landed_files WHERE table_name = ? GROUP BY ALL", [table]
            )
        by_spark = tuple(self.lake.run(f"{query} ratify.{table}")[0].values())
        assert {by_duckdb[:2]} == {by_spark[:2]} == wanted
        assert by_duckdb[2] == by_spark[2] == by_duckdb[0]
        said = {status: (files, rows) for status, files, rows in ledger}
        assert said.pop("loaded") == (len(self.amounts), by_duckdb[0])
        assert said in ({}, {"repeated": (len(self.listed()) - len(self.amounts), 0)})
        found = files_loaded_once(self.zone, self.lake.duckdb, self.source)
        assert found.passed, found.description


@pytest.fixture
def files(lake: Lakehouse, tmp_path: Path) -> Files:
    return Files(lake, tmp_path / "landing")


def at_the_same_moment(files: Files, count: int) -> None:
    """Two writers of one machine are given the same file, `count` times."""
    paths = [files.land(number) for number in range(count)]
    barrier = threading.Barrier(2)
    outcomes: list[list[BatchOutcome]] = [[], []]
    engines = [files.lake.another_duckdb(threads=1) for _ in range(2)]
    listed = {file.path: file for file in files.listed()}

    def write(writer: int) -> None:
        for path in paths:
            barrier.wait(60)
            outcomes[writer].append(load_batch(engines[writer], files.zone, files.source, [listed[path]]))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.close()
    for both in zip(*outcomes, strict=True):
        fates = Counter(outcome.files[0].status for outcome in both)
        brought = [outcome.version for outcome in both if outcome.version is not None]
        assert len(brought) == 1
        # The second finds the bytes there: in the ledger already, or not yet, and then enters them for the first.
        assert fates in ({Status.LOADED: 1, Status.REPEATED: 1}, {Status.LOADED: 2})
    files.check()


def test_two_writers_with_the_same_file(files: Files) -> None:
    at_the_same_moment(files, 8)


@pytest.mark.long
def test_two_writers_with_the_same_file_two_hundred_times(files: Files) -> None:
    at_the_same_moment(files, 200)


def lose_answers(files: Files, in_a_row: Sequence[int]) -> None:
    """Load a file after each of which so many answers in a row are lost, and read the table each time."""
    lake = files.lake
    with faulty_network(lake.stack.catalog.url) as network:
        engine = DuckDB(catalog=UnityCatalog(host=network.url, token=another_catalog(lake.stack).bearer_token()), threads=1)
        for number, count in enumerate(in_a_row):
            path = files.land(number)
            network.spoil(Moment.AFTER, *[CUT] * count)
            outcome = files.load(engine, path)
            assert network.spoiled == count
            assert [(file.status, file.rows) for file in outcome.files] == [(Status.LOADED, len(files.amounts[path]))]
            files.check()
        engine.close()


def test_answers_that_are_lost(files: Files) -> None:
    lose_answers(files, [1, 2])


@pytest.mark.long
def test_answers_that_are_lost_at_length(files: Files) -> None:
    lose_answers(files, [1, 2, 4, 8, *(files.chance.choice([0, 0, 1, 2, 3]) for _ in range(20))])


@dataclass
class MortalCatalog:
    """A catalog that only one test uses, and may kill: it comes back on its port. `files` are in a lakehouse on it.

    What the others share is no test's to kill: their requests that are under way would be lost.
    """

    home: Path
    files: Files
    server: CatalogProcess

    def kill(self) -> None:
        port = urlsplit(self.server.url).port
        self.server.kill()
        self.server = CatalogProcess.start(self.home, port=port)


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MortalCatalog]:
    (home := tmp_path / "catalog").mkdir()
    server = CatalogProcess.start(home)
    # For the writers, which are processes.
    monkeypatch.setenv("UNITY_HOST", server.url)
    monkeypatch.setenv("UNITY_TOKEN", server.token)
    with sparkless_on(server) as lake:
        lake.catalog.ensure_schemas(LAYERS)
        catalog = MortalCatalog(home, Files(lake, tmp_path / "landing"), server)
        yield catalog
    assert catalog.server.stop() == 0


def chaos(
    files: Files,
    folder: Path,
    home: Path,
    *,
    writers: int,
    count: int,
    kills: int,
    catalog_kills: int = 0,
    kill_catalog: Callable[[], None] = lambda: None,
) -> None:
    """Writers are killed at random moments of their work, `kills` times each, and the catalog in between; a tenth of the
    files is landed twice under two names, and a third of them go to two writers."""
    chance = files.chance
    first = [files.land(number) for number in range(count - count // 10)]
    again = [files.land_again(path) for path in chance.sample(first, count // 10)]
    deliveries = [*first, *again]
    deliveries += chance.sample(deliveries, count // 3)
    chance.shuffle(deliveries)
    working = [
        Writer(folder, home, files.root, files.source.table.name, deliveries[number::writers], number)
        for number in range(writers)
    ]
    moments = sorted((chance.uniform(0, 0.9), number) for number in range(writers) for _ in range(kills))
    catalog_moments = sorted(chance.uniform(0.1, 0.8) for _ in range(catalog_kills))
    deadline = time.monotonic() + 1500
    try:
        while any(writer.process.poll() is None for writer in working):
            assert time.monotonic() < deadline, [writer.output for writer in working]
            for writer in working:
                assert writer.process.poll() in (None, 0), writer.output
            due = [moment for moment in moments if working[moment[1]].done / working[moment[1]].total >= moment[0]]
            for moment in due[:1]:
                time.sleep(chance.uniform(0, 0.3))
                moments.remove(moment)
                # One that has ended meanwhile is started once more: it then has nothing to do.
                working[moment[1]].kill()
            if catalog_moments and sum(writer.done for writer in working) / len(deliveries) >= catalog_moments[0]:
                catalog_moments.pop(0)
                kill_catalog()
            time.sleep(0.02)
    finally:
        for writer in working:
            writer.process.kill()
            writer.process.wait()
    assert not moments
    assert not catalog_moments
    files.check()


@pytest.mark.long
def test_writers_are_killed(files: Files, tmp_path: Path, home: Path) -> None:
    """Spark reads the rows, too; `test_writers_and_the_catalog_are_killed` has the same kills."""
    chaos(files, tmp_path, home, writers=2, count=30, kills=1)


def test_writers_and_the_catalog_are_killed(mortal: MortalCatalog, tmp_path: Path) -> None:
    chaos(mortal.files, tmp_path, tmp_path, writers=2, count=20, kills=1, catalog_kills=1, kill_catalog=mortal.kill)


@pytest.mark.long
def test_writers_and_the_catalog_are_killed_at_length(mortal: MortalCatalog, tmp_path: Path) -> None:
    chaos(mortal.files, tmp_path, tmp_path, writers=8, count=400, kills=5, catalog_kills=3, kill_catalog=mortal.kill)
