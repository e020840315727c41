"""Bad input: each kind of broken file, with the reason that a person reads."""

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.bronze.csv_file import stage
from assets.bronze.ingest import batches
from assets.bronze.sources import AIRLINES
from resources.errors import BadFile
from resources.landing import LandedFile

HEADER = b"carrier,name\n"
GOOD = HEADER + b"AA,American\n"


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TEMP TABLE s (carrier VARCHAR, name VARCHAR, _source_file VARCHAR, _source_row BIGINT)")
    con.execute("INSERT INTO s VALUES ('ZZ', 'there before', 'z.csv', 1)")
    return con


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "zero bytes", id="zero bytes"),
        pytest.param(GOOD.decode().encode("utf-16"), "UTF-16", id="UTF-16"),
        pytest.param(GOOD.decode().encode("utf-16-le"), "UTF-16", id="UTF-16 without a mark"),
        pytest.param(b"foo,bar\n1,2\n", "not expected: foo, bar", id="wrong header"),
        pytest.param(b"carrier,name,extra\nA,b,c\n", "not expected: extra", id="extra column"),
        pytest.param(b"carrier\nA\n", "lacks columns: name", id="missing column"),
        pytest.param(b"name,carrier\nb,A\n", "another order", id="columns in another order"),
        pytest.param(HEADER + b"A,b\nA,b,c\n", "line 3", id="line too wide"),
        pytest.param(HEADER + b"A,b\nA\n", "line 3", id="line too narrow"),
        pytest.param(HEADER + b"A,b\nB,cu", "cut off", id="truncated last line"),
        pytest.param(HEADER + b'A,"b\nB,c\n', "not closed", id="open quote"),
        pytest.param(HEADER + b"A,\xff\xfe\n", "not UTF-8", id="not UTF-8"),
        pytest.param(HEADER + b"A," + b"x" * 3_000_000 + b"\n", "longer than 2,097,152 bytes", id="long line"),
    ],
)
def test_a_bad_file_is_refused_whole(con: duckdb.DuckDBPyConnection, tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(BadFile, match=reason) as error:
        stage(con, AIRLINES, "ref/f.csv", tmp_path / "f", "s")
    assert str(error.value).startswith("ref/f.csv: ")
    assert con.execute("SELECT count(*) FROM s").fetchone() == (1,)


def test_a_hundred_megabytes_on_one_line_are_refused(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for head in (b"", HEADER):
        with (tmp_path / "f").open("wb") as file:
            file.write(head)
            for _ in range(100):
                file.write(b"x" * 1_000_000)
            file.write(b"\n")
        with pytest.raises(BadFile, match="longer than"):
            stage(con, AIRLINES, "f.csv", tmp_path / "f", "s")


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (GOOD, [("AA", "American", 1)]),
        (HEADER, []),
        (b"\xef\xbb\xbf" + GOOD, [("AA", "American", 1)]),
        (b'carrier,name\r\nAA,"a, ""b"""\r\nBB,\r\n', [("AA", 'a, "b"', 1), ("BB", None, 2)]),
        (HEADER + b"not-a-number,1e400\n", [("not-a-number", "1e400", 1)]),
    ],
)
def test_a_good_file_is_staged_as_text(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, content: bytes, rows: list[tuple[str, str, int]]
) -> None:
    (tmp_path / "f").write_bytes(content)
    assert stage(con, AIRLINES, "f.csv", tmp_path / "f", "s") == len(rows)
    found = con.execute("SELECT carrier, name, _source_row FROM s WHERE _source_file = 'f.csv' ORDER BY 3").fetchall()
    assert found == rows


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7), st.integers(1, 100))
def test_batches_are_bounded_and_lose_nothing(sizes: list[int], max_files: int, max_bytes: int) -> None:
    files = [LandedFile(f"{number:03}.csv", size, "f") for number, size in enumerate(sizes)]
    made = list(batches(files, max_files, max_bytes))
    assert [file for batch in made for file in batch] == files
    assert all(len(batch) <= max_files for batch in made)
    assert all(len(batch) == 1 or sum(file.size for file in batch) <= max_bytes for batch in made)
