"""Landed files of every format: each ends as the corpus says, whatever its bytes."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.bronze.files.infer import infer
from assets.bronze.files.parse import ColumnsToAdd, Load, Parsed, parse
from assets.bronze.sources import LOAD_COLUMNS, RESCUED, Source
from resources.errors import BadFile
from tests.assets.corpus import CASES, Adds, Case, Ingested, Refused

LOAD = Load(dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC), "corpus-1")
OURS = {column.name for column in (*LOAD_COLUMNS, RESCUED)}
# A person who reads why a file was refused must also read what to do.
ADVICE = re.compile(r"[;:,] .*\b(land|declare|mend|rename|write|double|quote|end|leave|let|keep|name|add|expected)\b|\?$")


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    # A timestamp without a zone is UTC wherever the machine stands.
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    return con


def landed(con: duckdb.DuckDBPyConnection, case: Case, folder: Path) -> Parsed:
    (folder / "local").write_bytes(case.content)
    columns = case.source.table.columns
    return parse(con, case.source, columns, case.file, folder / "local", folder / "out.parquet", LOAD)


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
        case Refused(reason):
            with pytest.raises(BadFile) as bad:
                landed(con, case, tmp_path)
            assert re.search(reason, bad.value.reason), bad.value.reason
            assert ADVICE.search(bad.value.reason), bad.value.reason
            assert bad.value.path == case.file
        case Adds(columns):
            with pytest.raises(ColumnsToAdd) as new:
                landed(con, case, tmp_path)
            assert {column.name: column.type for column in new.value.columns} == columns
        case Ingested(rows, rescued):
            parsed = landed(con, case, tmp_path)
            found = written(con, case.source, tmp_path)
            assert parsed == Parsed(len(rows), len(rescued))
            data = [tuple(value for name, value in row.items() if name not in OURS) for row in found]
            assert repr(data) == repr(list(rows))
            kept = {row["_source_row"]: json.loads(row[RESCUED.name]) for row in found if row.get(RESCUED.name)}
            assert kept == {row: {**values, "_file_path": case.file} for row, values in rescued.items()}
            ours = [(row["_source_file"], row["_source_row"], row["_loaded_at"], row["_batch_id"]) for row in found]
            assert ours == [(case.file, n, "2024-01-31 10:00:00+00", "corpus-1") for n in range(1, len(rows) + 1)]
    assert {path.name for path in tmp_path.iterdir()} <= {"local", "out.parquet"}
    assert (tmp_path / "out.parquet").exists() == isinstance(case.fate, Ingested)
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
