"""Landed files written again without a subject's records: what is left is as it was, or the file stays as it is."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import CsvDialect, Source
from ratify_lakehouse.ingest.formats import record_removal
from ratify_lakehouse.ingest.formats.isolated_parsing import remove_records
from ratify_lakehouse.ingest.formats.record_removal import ChosenRecords, Removal
from ratify_lakehouse.sql.subject_match import Match
from tests.ingest.corpus_case import FAILING, RESCUING, Case, IngestedFile, parquet_file
from tests.ingest.file_corpus import CASES
from tests.process_duckdb import cursor

GERMAN = "id;name\r\n1;Ann\r\n2;Jürgen\r\n"
SEMICOLONS = CsvDialect(";")
QUOTED = 'id,name,amount\n1,Ann,2\n\n2,"Bo\n""b",3\n3,Ann,1\n4,Cid,2\n'


def removed(
    folder: Path, file: str, content: bytes, source: Source = FAILING, value: str = "Ann", column: str = "name"
) -> tuple[Removal, bytes | None]:
    local, into = folder / "landed", folder / "rewritten"
    local.write_bytes(content)
    held = next(each for each in (*source.table.columns, Column(column, "string")) if each.name == column)
    chosen = ChosenRecords([held], Match(column).duckdb, value)
    with cursor() as con:
        found = remove_records(con, source, file, local, into, chosen)
    made = into.read_bytes() if into.exists() else None
    assert sorted(path.name for path in folder.iterdir()) == (["landed", "rewritten"] if made else ["landed"])
    into.unlink(missing_ok=True)
    return found, made


@pytest.mark.parametrize(
    ("file", "content", "left", "declared"),
    [
        ("a.csv", QUOTED.encode(), b'id,name,amount\n\n2,"Bo\n""b",3\n4,Cid,2\n', {}),
        ("a.csv", b"\xef\xbb\xbfid,name\r\n1,Ann\r\n2,Bob", b"\xef\xbb\xbfid,name\r\n2,Bob", {"last_line_open": True}),
        ("a.csv", b"name\nAnn\n\nBob\n", b"name\n\nBob\n", {}),
        ("a.csv", GERMAN.encode("latin-1"), "id;name\r\n2;Jürgen\r\n".encode("latin-1"), {"encoding": "latin-1"}),
        ("a.csv", GERMAN.encode("utf-16"), "id;name\r\n2;Jürgen\r\n".encode("utf-16"), {"encoding": "utf-16"}),
        ("a.csv", "id§name\n1§Ann\n2§Ünal\n".encode(), "id§name\n2§Ünal\n".encode(), {"csv": CsvDialect("§")}),
        ("a.csv", b"'id',name\n1,'A\\'n,n'\n2,Ann\n", b"'id',name\n1,'A\\'n,n'\n", {"csv": CsvDialect(",", "'", "\\")}),
        ("a.csv", b"1,Ann\n2,Bob\n", b"2,Bob\n", {"csv": CsvDialect(header=False), "header": ("id", "name")}),
        ("a.csv", b'id\tname\n1\t"Ann\n2\tAnn\n', b'id\tname\n1\t"Ann\n', {"csv": CsvDialect("\t", "", "\\")}),
        (
            "a.jsonl",
            b'\xef\xbb\xbf{"name":"Ann","z":1}\n\n {"name": "B"}\n{"name":"Ann"}',
            b'\xef\xbb\xbf\n {"name": "B"}\n',
            {},
        ),
    ],
)
def test_the_other_bytes_stay(tmp_path: Path, file: str, content: bytes, left: bytes, declared: dict[str, Any]) -> None:
    dialect = SEMICOLONS if b";" in content.replace(b"\0", b"") else CsvDialect()
    source = replace(RESCUING, **{"csv": dialect, **declared})
    assert removed(tmp_path, file, content, source)[1] == left


def test_a_packed_file_stays_packed(tmp_path: Path) -> None:
    packings: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        "gz": (gzip.compress, gzip.decompress),
        "zst": (zstandard.compress, lambda packed: zstandard.ZstdDecompressor().decompressobj().decompress(packed)),
    }
    for suffix, (pack, unpack) in packings.items():
        found, made = removed(tmp_path, f"a.csv.{suffix}", pack(b"name\nAnn\nBob\nCid\n"))
        assert (found, unpack(made or b"")) == (Removal(1, 2), b"name\nBob\nCid\n")
        # The ledger knows the new bytes by their hash: the same are made each time.
        assert removed(tmp_path, f"a.csv.{suffix}", pack(b"name\nAnn\nBob\nCid\n"))[1] == made


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4_raw", "uncompressed", "brotli"])
def test_parquet_has_the_same_columns_and_codec(tmp_path: Path, codec: str) -> None:
    names = "CASE WHEN i % 3 = 0 THEN 'Ann' ELSE 'B' || i END AS name"
    nested = "[i, 2] AS list, {'a': i::DECIMAL(9,2)} AS s, now()::TIMESTAMP_NS AS at"
    select = f"SELECT i AS id, {names}, {nested} FROM range(90) r(i)"
    with cursor() as con:
        con.execute(f"COPY ({select}) TO '{tmp_path}/landed' (FORMAT parquet, COMPRESSION {codec})")
    (tmp_path / "f").mkdir()
    found, made = removed(tmp_path / "f", "a.parquet", (tmp_path / "landed").read_bytes())
    assert found == Removal(30, 60)
    (tmp_path / "made").write_bytes(made or b"")
    with cursor() as con:
        described = [
            con.execute(f"DESCRIBE FROM read_parquet('{tmp_path}/{file}')").fetchall() for file in ("landed", "made")
        ]
        ids = [row for (row,) in con.execute(f"SELECT id FROM read_parquet('{tmp_path}/made')").fetchall()]
        codecs = con.execute(f"SELECT DISTINCT compression FROM parquet_metadata('{tmp_path}/made')").fetchall()
    assert described[0] == described[1]
    assert ids == [n for n in range(90) if n % 3]
    assert codecs == [(codec.upper(),)]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("a.csv", b"PK\x03\x04archive", "zip archive"),
        ("a.csv.gz", gzip.compress(gzip.compress(b"name\nAnn\n", mtime=0), mtime=0), "packed twice"),
        ("a.avro", b"name\nAnn\n", "its name does not show its format"),
        ("a.csv", b"name\nAnn\nB", "cut off"),
        ("a.parquet", parquet_file("SELECT 'Ann' AS name")[:-4], "cut off"),
    ],
)
def test_what_cannot_be_written_again_stays(tmp_path: Path, file: str, content: bytes, reason: str) -> None:
    with pytest.raises(BadFile, match=reason):
        removed(tmp_path, file, content)
    assert [path.name for path in tmp_path.iterdir()] == ["landed"]


def test_a_file_whose_others_would_change_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_removal, "csv_records", lambda *_: [(9, 13), (5, 9), (13, 17)])
    with pytest.raises(BadFile, match="its other records would not be the same"):
        removed(tmp_path, "a.csv", b"name\nBob\nAnn\nCid\n", value="Bob")


def test_a_file_without_others_is_not_written(tmp_path: Path) -> None:
    assert removed(tmp_path, "a.jsonl", b'{"name":"Ann"}\n{"name":"Ann"}\n') == (Removal(2, 0), None)
    assert removed(tmp_path, "a.jsonl", b'{"name":"Bob"}\n') == (Removal(0, 1), None)
    assert "Ann" not in repr(ChosenRecords([], "true", "Ann"))


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case.fate, IngestedFile)], ids=lambda case: case.id)
def test_each_file_of_the_corpus(tmp_path: Path, case: Case) -> None:
    """Without the records of its first value, or as it was: what is left has been compared by then."""
    assert isinstance(case.fate, IngestedFile)
    column = case.source.table.columns[0]
    values = [row[0] for row in case.fate.rows]
    found, made = removed(tmp_path, case.file, case.content, case.source, str(next(iter(values), "")), column.name)
    count = values.count(values[0]) if values and values[0] is not None else 0
    assert found == Removal(count, len(values) - count)
    assert (made is None) is (found.removed == 0 or found.left == 0)
