"""What a source declares: the format that a name says, and options that do not fit together."""

from dataclasses import replace
from typing import Any

import pytest

from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import CsvDialect, Format, NewColumns
from tests.ingest.corpus_case import FAILING, RESCUING


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", Format.CSV),
        ("x/A.CSV.GZ", Format.CSV),
        ("a.2024.jsonl.zst", Format.JSONL),
        ("a.json", Format.JSONL),
        ("a.parquet", Format.PARQUET),
        ("a.gz", None),
        ("a", None),
        ("a.txt", None),
    ],
)
def test_a_name_says_its_format(name: str, form: Format | None) -> None:
    assert RESCUING.format_of(name) == form
    assert replace(RESCUING, format=Format.JSONL).format_of(name) == Format.JSONL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"new_columns": NewColumns.ADD}, "added to an evolving schema only"),
        ({"new_columns": NewColumns.RESCUE}, "needs the column _rescued_data"),
        ({"encoding": "utf-9"}, "there is no encoding 'utf-9'"),
        ({"encoding": "base64"}, "there is no encoding 'base64'"),
        ({"csv": CsvDialect(header=False)}, "need a declared header"),
        ({"pattern": "x/*.jsonl", "csv": CsvDialect(delimiter=";")}, "files of the format jsonl have no csv options"),
        ({"format": Format.JSONL, "csv": CsvDialect(nulls=("NA",))}, "have no csv options"),
        ({"format": Format.PARQUET, "header": ("id",)}, "have no csv options"),
        ({"pattern": "*.json.gz", "last_line_open": True}, "have no csv options"),
        ({"pattern": "x/*.jsonl", "csv": CsvDialect(decimal=",")}, "have no csv options"),
        ({"pattern": "*.parquet", "encoding": "latin-1"}, "files of the format parquet have no encoding options"),
    ],
)
def test_a_source_must_fit_together(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=reason):
        replace(FAILING, **change)


@pytest.mark.parametrize("change", [{"delimiter": ""}, {"delimiter": "||"}, {"quote": "ab"}, {"escape": "ab"}])
def test_a_dialect_is_of_single_characters(change: dict[str, str]) -> None:
    with pytest.raises(UnsafeDeclaration, match="single characters"):
        CsvDialect(**change)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"decimal": ""}, "'' cannot be in a number"),
        ({"decimal": ",,"}, "',,' cannot be in a number"),
        ({"decimal": "e"}, "'e' cannot be in a number"),
        ({"thousands": "-"}, "'-' cannot be in a number"),
        ({"thousands": "5"}, "'5' cannot be in a number"),
        ({"thousands": "."}, "is both the decimal and the thousands separator"),
        ({"decimal": ",", "quote": ""}, "is the delimiter, and without quotes it cannot be in a number"),
    ],
)
def test_signs_of_a_number_tell_its_parts_apart(change: dict[str, str], reason: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=reason):
        CsvDialect(**change)  # pyright: ignore[reportArgumentType]
