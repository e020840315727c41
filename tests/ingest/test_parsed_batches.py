"""Files parsed in one pass end as each does alone: the same rows, counts, columns and reasons, whatever is among them."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.ingest.file_source import Format, Source
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.load.parsed_batch import ParsedBatch
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from tests.ingest.corpus_case import ADDING, CSV, FAILING, RENAMING, RESCUING, SEMICOLONS, STRICT, csv_file
from tests.ingest.file_corpus import CASES
from tests.ingest.parsed_file import LOAD
from tests.ingest.test_formats import DAMAGE, damaged
from tests.process_duckdb import cursor

SMALL = [case for case in CASES if len(case.content) < 50_000]
BY_SOURCE = {repr(case.source): case.source for case in SMALL}
SOURCES = list(BY_SOURCE.values())
CSV_NAMES = ("f.csv", "f.csv", "f.csv.gz")


@dataclass
class TableWithoutCatalog:
    """What a session does for a batch, where the table is no more than its columns."""

    con: duckdb.DuckDBPyConnection
    present: tuple[Column, ...]
    added: list[str] = field(default_factory=list[str])

    def columns(self, _: TableDeclaration) -> tuple[Column, ...]:
        return self.present

    def add_columns(self, _: TableDeclaration, columns: Sequence[Column]) -> tuple[Column, ...]:
        self.present += tuple(columns)
        self.added += [f"{column.name} {column.type}" for column in columns]
        return self.present


@dataclass
class Loaded:
    """A batch that was parsed."""

    outcomes: list[FileOutcome]
    added: list[str]
    batch: ParsedBatch

    @property
    def fates(self) -> list[tuple[Any, ...]]:
        return [(each.path, each.status, each.rows, each.rescued, each.reason, each.sha256) for each in self.outcomes]

    def rows(self, of: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
        """The rows of some of the files as they would be appended, and how many the log would have."""
        accepted = [each for each in self.outcomes if each.status is Status.LOADED and each.path in of]
        staged = self.batch.staged(accepted)
        if not staged.rows:
            return 0, []
        cursor = self.batch.session.con.execute(
            f"SELECT columns(*)::VARCHAR FROM read_parquet('{staged.parquet}') ORDER BY _source_file, _source_row"
        )
        names = [column[0] for column in cursor.description or ()]
        # A file that was parsed before a column was added lacks it.
        empty = dict.fromkeys(column.name for column in self.batch.columns)
        return staged.rows, [{**empty, **dict(zip(names, row, strict=True))} for row in cursor.fetchall()]


def loaded(source: Source, files: Sequence[tuple[str, bytes]], folder: Path, *, together: bool) -> Loaded:
    (folder / "landing").mkdir(parents=True)
    (folder / "scratch").mkdir()
    for name, content in files:
        (folder / "landing" / name).write_bytes(content)
    con = cursor()
    con.execute("SET TimeZone = 'UTC'")
    session: Any = TableWithoutCatalog(con, source.table.columns)
    batch = ParsedBatch(session, LandingZone(url=str(folder / "landing")), source, LOAD, folder / "scratch")
    listed = [LandedFile(name, len(content), "f") for name, content in files]
    outcomes = batch.parse(listed) if together else [outcome for file in listed for outcome in batch.parse([file])]
    assert {path.suffix for path in (folder / "scratch").iterdir()} <= {".parquet"}
    return Loaded(outcomes, session.added, batch)


def assert_equal(source: Source, files: Sequence[tuple[str, bytes]], some: Sequence[str] = ()) -> Loaded:
    """Compare one pass with a pass a file, as to all files and as to some that are staged without the others."""
    with tempfile.TemporaryDirectory() as name:
        one = loaded(source, files, Path(name) / "one", together=True)
        each = loaded(source, files, Path(name) / "each", together=False)
        assert one.fates == each.fates
        assert one.added == each.added
        for paths in ([name for name, _ in files], some):
            assert one.rows(paths) == each.rows(paths)
        return one


@pytest.mark.parametrize("source", SOURCES, ids=range(len(SOURCES)))
def test_the_corpus_in_one_batch_ends_as_each_file_alone(source: Source) -> None:
    cases = [case for case in SMALL if case.source == source]
    # Text twice, so that each has a file to be read together with; Parquet files are parsed one by one.
    files = [
        (f"{turn}{number:03}{case.file}", case.content)
        for turn in "ab"
        for number, case in enumerate(cases)
        if turn == "a" or case.source.format_of(case.file) is not Format.PARQUET
    ]
    assert_equal(source, files, [name for name, _ in files[::2]])


ROWS = st.lists(
    st.sampled_from(
        ["1,Ada,1.50", "2,Bob,", '3,"a\nb",2', '4,"say ""hi""",3', "x,Bad,1", "5,Wide,1,2", "6", ",,", "", "7,ü,1"]
    ),
    max_size=5,
)
HEADERS = st.sampled_from(
    ["id,name,amount"] * 4 + ["ID,Name,Amount", "amount,id,name", "id,name,more", "id,name,n,m", "x,y,z"]
)
ENDS = st.sampled_from(["\n", "\n", "\r\n"])


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    text = end.join([draw(HEADERS), *draw(ROWS)]) + draw(st.sampled_from([end, end, ""]))
    mark = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    return mark + text.encode(draw(st.sampled_from(["utf-8", "utf-8", "latin-1"])))


OF_SOURCES = [RESCUING, FAILING, ADDING, STRICT, RENAMING, SEMICOLONS, with_(RESCUING, last_line_open=True)]
GOOD = csv_file("1,Ada,1.50", "2,Bob,")


@st.composite
def batches_of_files(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """A batch of good files, of damaged ones and of files of the corpus."""
    one = st.one_of(
        csv_files(),
        csv_files(),
        st.builds(damaged, csv_files() | st.just(GOOD), DAMAGE),
        st.sampled_from([case.content for case in SMALL if case.file.endswith("csv")]),
    )
    contents = draw(st.lists(one, min_size=2, max_size=12))
    return [(f"{number:02}{draw(st.sampled_from(CSV_NAMES))}", content) for number, content in enumerate(contents)]


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=10, suppress_health_check=CHECKS)
@given(source=st.sampled_from(OF_SOURCES), files=batches_of_files(), step=st.integers(1, 3))
def test_a_batch_of_any_files_ends_as_each_file_alone(source: Source, files: list[tuple[str, bytes]], step: int) -> None:
    assert_equal(source, files, [name for name, _ in files[::step]])


@pytest.mark.long
@settings(max_examples=2_000, suppress_health_check=CHECKS)
@given(source=st.sampled_from(OF_SOURCES), files=batches_of_files(), step=st.integers(1, 3))
def test_a_batch_of_any_files_ends_as_each_file_alone_long(
    source: Source, files: list[tuple[str, bytes]], step: int
) -> None:
    assert_equal(source, files, [name for name, _ in files[::step]])


def test_files_with_the_same_header_are_one_parquet_file(tmp_path: Path) -> None:
    """Their rows are appended as they were written; a bad file among them costs its neighbours a pass, and no row."""
    files = [(f"{number:03}.csv", csv_file(f"{number},Ada,1.50", '9,"b\nc",')) for number in range(60)]
    one = loaded(FAILING, files, tmp_path / "good", together=True)
    assert len(one.batch._parts) == 1
    staged = one.batch.staged(one.outcomes)
    assert (staged.parquet, staged.rows) == (one.batch._parts[0].parquet, 120)
    files[17] = ("017.csv", csv_file("x,Ada,1.50"))
    one = loaded(FAILING, files, tmp_path / "bad", together=True)
    assert [each.path for each in one.outcomes if each.status is Status.REFUSED] == ["017.csv"]
    assert 2 < len(one.batch._parts) <= 6
    assert one.batch.staged([each for each in one.outcomes if each.status is Status.LOADED]).rows == 118


def test_a_file_that_was_loaded_meanwhile_is_left_out_of_its_group(tmp_path: Path) -> None:
    one = loaded(RESCUING, [(f"{number}.csv", CSV) for number in range(3)], tmp_path / "f", together=True)
    count, rows = one.rows(["0.csv", "2.csv"])
    assert (count, [(row["_source_file"], row["_source_row"]) for row in rows]) == (
        4,
        [("0.csv", "1"), ("0.csv", "2"), ("2.csv", "1"), ("2.csv", "2")],
    )
