"""Load batches on the real engines: each file's rows once, and a fate for every file, whatever dies in between."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
import pytest

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.checks.landed_file_checks import files_loaded_once
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.ingest.file_source import APPEND, LOAD_COLUMNS, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.ledger.ledger_queries import waiting
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome, load_batch
from ratify_lakehouse.ingest.load.file_batches import batch_id
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from tests.engines.lakehouse import Lakehouse

HEADER = "code,name\n"

pytestmark = pytest.mark.locks("ledger of files")


def new_source(*header: str) -> Source:
    """A source whose folder and table no other test has."""
    name = f"s_{uuid4().hex[:10]}"
    columns = (*(Column(column, "string") for column in header), *LOAD_COLUMNS)
    table = TableDeclaration("bronze", name, columns, "of a test", Engine.DUCKDB, APPEND)
    return Source(f"{name}/*.csv", header, table)


class Landing:
    """A landing zone with files of one source."""

    def __init__(self, lake: Lakehouse, root: Path, source: Source) -> None:
        self.lake, self.root, self.source = lake, root, source
        self.zone = LandingZone(url=str(root))
        self.folder = source.pattern.partition("/")[0]
        (root / self.folder).mkdir()
        for table in (LANDED_FILES, source.table):
            lake.ensure(table)

    def put(self, name: str, text: str) -> None:
        (self.root / self.folder / name).write_text(text)

    def waiting(self) -> list[LandedFile]:
        return waiting(self.lake.duckdb, self.zone, self.source)

    def load(self, *names: str) -> BatchOutcome:
        wanted = {f"{self.folder}/{name}" for name in names}
        files = [file for file in self.zone.files(self.source.pattern) if not names or file.path in wanted]
        return load_batch(self.lake.duckdb, self.zone, self.source, files)

    def fates(self, outcome: BatchOutcome) -> dict[str, tuple[Status, int, str]]:
        return {Path(file.path).name: (file.status, file.rows, file.reason) for file in outcome.files}

    def bronze(self) -> list[tuple[Any, ...]]:
        with self.lake.duckdb.session() as session:
            return session.rows(
                f"SELECT * EXCLUDE (_loaded_at, _batch_id, _source_file), parse_filename(_source_file) "
                f"FROM uc.{self.source.table_name} ORDER BY _source_file, _source_row"
            )

    def ledger(self) -> list[tuple[Any, ...]]:
        with self.lake.duckdb.session() as session:
            return session.rows(
                "SELECT parse_filename(path), status, rows FROM uc.ops.landed_files WHERE table_name = ? ORDER BY ALL",
                [self.source.table_name],
            )

    def version(self) -> int:
        return self.lake.version(self.source.table)


@pytest.fixture
def landing(lake: Lakehouse, tmp_path: Path) -> Landing:
    return Landing(lake, tmp_path, new_source("code", "name"))


@pytest.mark.stack
def test_the_fates_of_files(landing: Landing) -> None:
    landing.put("1.csv", HEADER + "AA,American\nUA,\n")
    landing.put("2.csv", HEADER + "DL,Delta\n")
    landing.put("3.csv", HEADER + "cut,o")
    landing.put("4.csv", HEADER + "DL,Delta\n")
    assert len(landing.waiting()) == 4
    first = landing.load()
    assert landing.fates(first) == {
        "1.csv": (Status.LOADED, 2, ""),
        "2.csv": (Status.LOADED, 1, ""),
        "3.csv": (Status.REFUSED, 0, "the last line is cut off: it has no line end; land the whole file again"),
        "4.csv": (Status.REPEATED, 0, f"the same bytes as {landing.folder}/2.csv"),
    }
    assert (first.version, first.rows, landing.version()) == (1, 3, 1)
    rows = [("AA", "American", 1, "1.csv"), ("UA", None, 2, "1.csv"), ("DL", "Delta", 1, "2.csv")]
    assert landing.bronze() == rows
    assert landing.waiting() == []

    # The same again, the same bytes under another name, other bytes under a name that was loaded.
    assert landing.fates(landing.load("1.csv"))["1.csv"] == (Status.REPEATED, 0, "its bytes were loaded before")
    landing.put("5.csv", HEADER + "DL,Delta\n")
    landing.put("1.csv", HEADER + "XX,changed\n")
    landing.put("6.csv", HEADER)
    landing.put("7.csv", HEADER + "B6,JetBlue\n")
    second = landing.load("1.csv", "5.csv", "6.csv", "7.csv")
    changed = "this name was loaded before with other content; land a correction under a new name"
    assert landing.fates(second) == {
        "1.csv": (Status.REFUSED, 0, changed),
        "5.csv": (Status.REPEATED, 0, f"the same bytes as {landing.folder}/2.csv"),
        "6.csv": (Status.LOADED, 0, ""),
        "7.csv": (Status.LOADED, 1, ""),
    }
    assert landing.bronze() == [*rows, ("B6", "JetBlue", 1, "7.csv")]
    assert landing.version() == 2
    assert landing.waiting() == []
    assert landing.ledger() == [
        ("1.csv", "loaded", 2),
        ("1.csv", "refused", 0),
        ("2.csv", "loaded", 1),
        ("3.csv", "refused", 0),
        ("4.csv", "repeated", 0),
        ("5.csv", "repeated", 0),
        ("6.csv", "loaded", 0),
        ("7.csv", "loaded", 1),
    ]
    found = files_loaded_once(landing.zone, landing.lake.duckdb, landing.source)
    assert found.passed, found.description


@pytest.mark.stack
def test_a_crash_between_the_rows_and_the_ledger(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt("killed before the ledger was written")

    landing.put("1.csv", HEADER + "AA,American\nUA,United\n")
    with monkeypatch.context() as patch:
        patch.setattr(FileLedger, "_append", dies)
        with pytest.raises(KeyboardInterrupt):
            landing.load()
    assert (landing.version(), landing.ledger()) == (1, [])
    assert len(landing.waiting()) == 1
    assert not files_loaded_once(landing.zone, landing.lake.duckdb, landing.source).passed

    # A file came meanwhile, so that the batch that takes the work up again is another one.
    landing.put("2.csv", HEADER + "DL,Delta\n")
    again = landing.load()
    assert [(file.status, file.rows, file.recovered) for file in again.files] == [
        (Status.LOADED, 2, True),
        (Status.LOADED, 1, False),
    ]
    assert again.files[0].batch_id != again.files[1].batch_id
    assert landing.ledger() == [("1.csv", "loaded", 2), ("2.csv", "loaded", 1)]
    assert len(landing.bronze()) == 3
    assert landing.waiting() == []
    assert files_loaded_once(landing.zone, landing.lake.duckdb, landing.source).passed


@pytest.mark.stack
def test_rows_that_were_taken_away_are_found_by_both_counts(landing: Landing) -> None:
    landing.put("1.csv", HEADER + "AA,American\nUA,United\n")
    landing.load()
    landing.lake.run(f"DELETE FROM {landing.lake.full(landing.source.table)} WHERE code = 'UA'")
    lost = files_loaded_once(landing.zone, landing.lake.duckdb, landing.source)
    assert (lost.passed, lost.numbers["lost"], lost.numbers["doubled"]) == (False, 1, 0)
    assert "Row counts differ for " in lost.description
    landing.lake.run(
        f"INSERT INTO {landing.lake.full(landing.source.table)} SELECT t.* FROM "
        f"{landing.lake.full(landing.source.table)} t LATERAL VIEW explode(array(1, 2)) AS n"
    )
    doubled = files_loaded_once(landing.zone, landing.lake.duckdb, landing.source)
    assert (doubled.passed, doubled.numbers["lost"], doubled.numbers["doubled"]) == (False, 0, 1)


@pytest.mark.stack
def test_rows_are_compared_with_files_of_any_format(lake: Lakehouse, tmp_path: Path) -> None:
    source = new_source("code", "name")
    folder = source.pattern.partition("/")[0]
    landing = Landing(lake, tmp_path, replace(source, pattern=f"{folder}/*", header=()))
    landing.put("1.csv", HEADER + "A,x\n")
    landing.put("2.jsonl", '{"code": "B", "name": "y\\nz"}\n\n{"code": "C"}\n')
    pyarrow.parquet.write_table(pa.table({"name": list("uvw"), "code": list("DEF")}), tmp_path / folder / "3.parquet")
    landing.load()

    def found() -> Finding:
        return files_loaded_once(landing.zone, lake.another_duckdb(), landing.source)

    assert (found().passed, found().numbers["rows in files"], found().numbers["files read"]) == (True, 6, 3)
    lake.quick(f"DELETE FROM {lake.full(source.table)} WHERE code IN ('C', 'F')")
    text = found().description
    assert f"Row counts differ for {folder}/2.jsonl, {folder}/3.parquet (2 files)." in text


def test_a_batch_is_known_by_its_files_versions() -> None:
    source = new_source("a")
    one, two, changed = LandedFile("1.csv", 1, "f"), LandedFile("2.csv", 1, "f"), LandedFile("2.csv", 1, "g")
    assert batch_id(source, [one, two]) == batch_id(source, [two, one])
    assert len({batch_id(source, files) for files in ([one, two], [one], [two], [one, changed])}) == 4
