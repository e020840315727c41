"""Landed files of every format: each ends as the corpus says, whatever its bytes."""

import csv
import gzip
import io
import json
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS, RESCUED, Source
from ratify_lakehouse.ingest.formats import isolated_parsing, unpacked_file
from ratify_lakehouse.ingest.formats.isolated_parsing import ParserEnded
from ratify_lakehouse.ingest.formats.parse_file import ColumnsToAdd
from tests.ingest.corpus_case import ADDING, BOTH, PARQUET, RESCUING, STRICT, AddsColumns, Case, IngestedFile, RefusedFile
from tests.ingest.file_corpus import CASES
from tests.ingest.parsed_file import ParsedCounts, parsed

OURS = {column.name for column in (*LOAD_COLUMNS, RESCUED)}
# A person who reads why a file was refused must also read what to do.
ADVICE = re.compile(r"[;:,] .*\b(land|declare|fix|rename|write|double|quote|end|leave|let|keep|name|add|expected)\b|\?$")


def landed(con: duckdb.DuckDBPyConnection, case: Case, folder: Path) -> ParsedCounts:
    (folder / "local").write_bytes(case.content)
    columns = case.source.table.columns
    return parsed(con, case.source, columns, case.file, folder / "local", folder / "out.parquet")


def written(con: duckdb.DuckDBPyConnection, source: Source, folder: Path) -> list[dict[str, Any]]:
    """The rows of the Parquet file, with dates and timestamps as UTC shows them."""
    con.execute("SET TimeZone = 'UTC'")
    shown = [f'"{c.name}"' + ("::VARCHAR" if c.type in ("date", "timestamp") else "") for c in source.table.columns]
    cursor = con.execute(f"SELECT {', '.join(shown)} FROM '{folder}/out.parquet'")
    names = source.table.column_names
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_file_of_the_corpus_ends_as_declared(con: duckdb.DuckDBPyConnection, tmp_path: Path, case: Case) -> None:
    match case.fate:
        case RefusedFile(reason):
            with pytest.raises(BadFile) as bad:
                landed(con, case, tmp_path)
            assert re.search(reason, bad.value.reason), bad.value.reason
            assert ADVICE.search(bad.value.reason), bad.value.reason
            assert bad.value.path == case.file
        case AddsColumns(columns):
            with pytest.raises(ColumnsToAdd) as new:
                landed(con, case, tmp_path)
            assert {column.name: column.type for column in new.value.columns} == columns
        case IngestedFile(rows, rescued):
            counts = landed(con, case, tmp_path)
            found = written(con, case.source, tmp_path)
            assert counts == ParsedCounts(len(rows), len(rescued))
            data = [tuple(value for name, value in row.items() if name not in OURS) for row in found]
            assert repr(data) == repr(list(rows))
            kept = {row["_source_row"]: json.loads(row[RESCUED.name]) for row in found if row.get(RESCUED.name)}
            assert kept == {row: {**values, "_file_path": case.file} for row, values in rescued.items()}
            ours = [(row["_source_file"], row["_source_row"], row["_loaded_at"], row["_batch_id"]) for row in found]
            assert ours == [(case.file, n, "2024-01-31 10:00:00+00", "corpus-1") for n in range(1, len(rows) + 1)]
    assert {path.name for path in tmp_path.iterdir()} <= {"local", "out.parquet"}
    assert (tmp_path / "out.parquet").exists() == isinstance(case.fate, IngestedFile)
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


def at_work(case: Case, content: bytes, con: duckdb.DuckDBPyConnection) -> None:
    """Parse a damaged file of the corpus: whatever its bytes, it is refused whole or written whole."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = folder / "out.parquet"
        try:
            counts = landed(con, replace(case, content=content), folder)
        except (BadFile, ColumnsToAdd):
            assert not out.exists()
        else:
            assert con.execute(f"SELECT count(*) FROM '{out}'").fetchone() == (counts.rows,)
        assert {path.name for path in folder.iterdir()} <= {"local", "out.parquet"}


SMALL = [case for case in CASES if 0 < len(case.content) < 50_000]
DAMAGE = st.lists(
    st.tuples(st.sampled_from(["cut", "flip", "insert", "double"]), st.floats(0, 1), st.integers(0, 255)),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, faults: list[tuple[str, float, int]]) -> bytes:
    for kind, place, byte in faults:
        at = int(place * len(content))
        match kind:
            case "cut":
                content = content[:at]
            case "flip":
                content = content[:at] + bytes([byte]) + content[at + 1 :]
            case "insert":
                content = content[:at] + bytes([byte]) + content[at:]
            case _:
                content = content[:at] + content[max(0, at - byte) :]
    return content


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=st.sampled_from(SMALL), faults=DAMAGE)
def test_damage_is_refused_or_read(con: duckdb.DuckDBPyConnection, case: Case, faults: list[tuple[str, float, int]]) -> None:
    at_work(case, damaged(case.content, faults), con)


@pytest.mark.long
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=st.sampled_from(SMALL), faults=DAMAGE)
def test_damage_is_refused_or_read_long(
    con: duckdb.DuckDBPyConnection, case: Case, faults: list[tuple[str, float, int]]
) -> None:
    at_work(case, damaged(case.content, faults), con)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(TEXT, TEXT), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    pack=st.sampled_from([bytes, gzip.compress, zstandard.compress]),
)
def test_csv_says_what_pythons_csv_wrote(
    con: duckdb.DuckDBPyConnection, rows: list[tuple[str, str]], end: str, pack: Any
) -> None:
    into = io.StringIO(newline="")
    writer = csv.writer(into, quoting=csv.QUOTE_ALL, lineterminator=end)
    writer.writerows([("code", "name"), *rows])
    case = Case("", "a.csv", pack(into.getvalue().encode()), IngestedFile(()), STRICT)
    with tempfile.TemporaryDirectory() as folder:
        assert landed(con, case, Path(folder)).rows == len(rows)
        found = [(row["code"], row["name"]) for row in written(con, STRICT, Path(folder))]
    assert found == [(code or None, name or None) for code, name in rows]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["id", "name", "_file_path", "_source_file"]) | TEXT, JSON, max_size=4),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=RECORDS)
def test_json_lines_lose_no_value(con: duckdb.DuckDBPyConnection, records: list[dict[str, Any]]) -> None:
    json_lines_lose_no_value(con, records)


@pytest.mark.long
@settings(max_examples=5_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=RECORDS)
def test_json_lines_lose_no_value_long(con: duckdb.DuckDBPyConnection, records: list[dict[str, Any]]) -> None:
    json_lines_lose_no_value(con, records)


def json_lines_lose_no_value(con: duckdb.DuckDBPyConnection, records: list[dict[str, Any]]) -> None:
    """Each value is in its column or in `_rescued_data`."""
    content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folded = [[key.lower() for key in record] for record in records]
        twice = any(len(set(keys)) < len(keys) for keys in folded)
        foreign = any(folded) and not {"id", "name"} & {key for keys in folded for key in keys}
        case = Case("", "a.jsonl", content, IngestedFile(()))
        if twice or foreign:
            with pytest.raises(BadFile, match="has a key twice" if twice else "none of its columns"):
                landed(con, case, folder)
            return
        landed(con, case, folder)
        rows = written(con, RESCUING, folder)
    for record, row in zip(records, rows, strict=True):
        kept = json.loads(row["_rescued_data"] or "{}")
        for key, value in record.items():
            # A field may have the name of a load column, which is not for it.
            found = kept.get(key, row[key.lower()] if key.lower() in {"id", "name"} else None)
            text = value if isinstance(value, str) else json.dumps(value)
            assert found == value or (isinstance(found, int) and found == int(text)) or json_equal(found, text), (
                key,
                record,
                row,
            )


def json_equal(found: Any, text: str) -> bool:
    """Whether a text column holds the JSON text of a value that is no string."""
    try:
        return bool(isinstance(found, str) and json.loads(found) == json.loads(text))
    except ValueError:
        return False


def test_a_file_that_many_threads_read_keeps_its_order(own_con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    own_con.execute("SET threads = 4")
    rows = 500_000
    (tmp_path / "local").write_text("code,name\n" + "".join(f"{n},n {n:>24}\n" for n in range(1, rows + 1)))
    assert (tmp_path / "local").stat().st_size > 2 * (8 << 20)
    columns = STRICT.table.columns
    assert parsed(own_con, STRICT, columns, "a.csv", tmp_path / "local", tmp_path / "out.parquet") == ParsedCounts(rows, 0)
    found = own_con.execute(
        f"SELECT count(*) FILTER (code::BIGINT = _source_row), count(*) FILTER (_source_row = file_row_number + 1) "
        f"FROM read_parquet('{tmp_path}/out.parquet', file_row_number = true)"
    ).fetchone()
    assert found == (rows, rows)


def test_a_hundred_megabytes_on_one_line_are_refused(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for head, line in ((b"", 1), (b"code,name\n", 2)):
        with (tmp_path / "f").open("wb") as file:
            file.write(head)
            for _ in range(100):
                file.write(b"x" * 1_000_000)
            file.write(b"\n")
        with pytest.raises(BadFile, match=f"line {line}: a line is longer than"):
            parsed(con, STRICT, STRICT.table.columns, "f.csv", tmp_path / "f", tmp_path / "out.parquet")


def test_lines_within_the_limit_are_read_wherever_they_lie(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The quick look at each chunk must not refuse a file whose lines are long, but not too long."""
    lines = [unpacked_file.LINE_LIMIT - 1, 10, unpacked_file.LINE_LIMIT // 2 + 7, unpacked_file.LINE_LIMIT - 1]
    (tmp_path / "f").write_bytes(b"code,name\n" + b"".join(b"a," + b"x" * (size - 2) + b"\n" for size in lines))
    out = tmp_path / "out.parquet"
    assert parsed(con, STRICT, STRICT.table.columns, "f.csv", tmp_path / "f", out) == ParsedCounts(len(lines), 0)


def test_what_is_unpacked_is_bounded(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked_file, "_UNPACKED_LIMIT", 1 << 20)
    content = b"code,name\n" + b"A,b\n" * (1 << 19)
    for pack in (gzip.compress, zstandard.compress):
        case = Case("", "a.csv", pack(content), RefusedFile(""), STRICT)
        with pytest.raises(BadFile, match="unpacked, the file has more than 1,048,576 bytes; land it in parts"):
            landed(con, case, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["local"]


def test_an_internal_error_of_duckdb_harms_no_other_file(own_con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    case = Case("", "a.csv", b"code,name\nA,b\n", BOTH, STRICT)
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"a,b\n1,\xff\n")
    reached, read, ended = threading.Event(), threading.Event(), []

    def parsed_beside(own: duckdb.DuckDBPyConnection) -> object:
        """A file that another thread reads, from the same database, while a bad one ends it."""
        reached.set()
        assert read.wait(60)
        ended.append(True)
        return own.execute("SELECT 1").fetchone()

    def parsed_badly(own: duckdb.DuckDBPyConnection) -> object:
        # DuckDB 1.5 counts all columns here, though only one is read.
        columns = "columns = {a: 'VARCHAR', b: 'VARCHAR'}, auto_detect = false, header = true"
        return own.execute(f"SELECT b FROM read_csv('{bad}', {columns})").fetchall()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(isolated_parsing._texts.call, own_con, "b.csv", parsed_beside, ())
        assert reached.wait(60)
        with pytest.raises(duckdb.InternalException):
            isolated_parsing._texts.call(own_con, "a.csv", parsed_badly, ())
        read.set()
        assert other.result(60) == (1,)
    # The first database was no more; the second could.
    assert len(ended) == 2
    assert own_con.execute("SELECT 1").fetchone() == (1,)
    bad.unlink()
    assert landed(own_con, case, tmp_path).rows == 1


@pytest.mark.server
def test_a_parquet_file_whose_parser_is_killed_is_not_refused(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    case = Case("", "a.parquet", PARQUET, BOTH)
    assert landed(con, case, tmp_path).rows == 2
    (parser,) = isolated_parsing._parsers._idle
    (tmp_path / "out.parquet").unlink()
    parser.kill()
    with pytest.raises(ParserEnded, match=r"exit code -9 at a\.parquet; load the file again"):
        landed(con, case, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["local"]
    assert landed(con, case, tmp_path).rows == 2


def test_a_parquet_file_too_large_for_the_memory_is_not_refused(own_con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The process has the limits of the connection; a row group of long texts needs more."""
    own_con.execute(f"COPY (SELECT repeat(md5(i::VARCHAR), 100) AS name FROM range(40_000) t(i)) TO '{tmp_path}/f.parquet'")
    content = (tmp_path / "f.parquet").read_bytes()
    (tmp_path / "f.parquet").unlink()
    own_con.execute("SET temp_directory = ''")
    own_con.execute("SET memory_limit = '8MB'")
    with pytest.raises(duckdb.OutOfMemoryException):
        landed(own_con, Case("", "a.parquet", content, BOTH), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["local"]


def test_a_full_machine_is_not_the_files_fault(own_con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A file that is refused is not read again, so what another day would read must not be refused."""
    own_con.execute("SET temp_directory = ''")
    own_con.execute("SET memory_limit = '4MB'")
    case = Case("", "a.jsonl", b'{"id": 1, "name": "%s"}\n' % (b"x" * 500) * 40_000, IngestedFile(()))
    with pytest.raises(duckdb.OutOfMemoryException):
        landed(own_con, case, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["local"]


def test_paths_are_no_patterns(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for folder in ("a[b]*", "day=1"):
        for suffix, content in (("csv", b"id\n1\n"), ("jsonl", b'{"id": 1}\n')):
            (tmp_path / folder).mkdir(exist_ok=True)
            local, out = tmp_path / folder / f"f?.{suffix}", tmp_path / folder / "o?.parquet"
            local.write_bytes(content)
            assert parsed(con, RESCUING, RESCUING.table.columns, local.name, local, out) == ParsedCounts(1, 0)
            local.unlink()


def test_new_columns_are_added_and_then_filled(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    content = b"id,n,note\n1,2,a\n2,x,b\n"
    case = Case("", "a.csv", content.replace(b"x", b"3"), IngestedFile(()), ADDING)
    with pytest.raises(
        ColumnsToAdd, match=r"lacks columns; add them, and parse the file again: n bigint, note string"
    ) as new:
        landed(con, case, tmp_path)
    columns = (*ADDING.table.columns, *new.value.columns)
    parsed(con, ADDING, columns, "a.csv", tmp_path / "local", tmp_path / "out.parquet")
    assert con.execute(f"SELECT n, note FROM '{tmp_path}/out.parquet'").fetchall() == [(2, "a"), (3, "b")]
    # A later file's values that do not fit the type then found are rescued.
    (tmp_path / "local").write_bytes(content)
    assert parsed(con, ADDING, columns, "b.csv", tmp_path / "local", tmp_path / "out.parquet").rescued == 1
