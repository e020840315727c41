"""The corpus: compressed files, and files of another format than their names show."""

import gzip

import zstandard

from tests.ingest.corpus_case import BOTH, CSV, JSONL, PARQUET, Case, RefusedFile

PACKED_CASES = (
    Case("gzip", "a.csv.gz", gzip.compress(CSV), BOTH),
    Case("gzip in two members", "a.csv.gz", gzip.compress(CSV[:20]) + gzip.compress(CSV[20:]), BOTH),
    Case("gzip, cut off", "a.csv.gz", gzip.compress(CSV * 50)[:-12], RefusedFile("gzip file is cut off; land the whole")),
    Case("gzip, without the last byte", "a.csv.gz", gzip.compress(CSV)[:-1], RefusedFile("gzip file is cut off")),
    Case(
        "gzip, with a wrong checksum",
        "a.csv.gz",
        gzip.compress(CSV)[:-8] + b"\0" * 8,
        RefusedFile("gzip file is damaged .*; land it"),
    ),
    Case("gzip, with garbage behind", "a.csv.gz", gzip.compress(CSV) + b"garbage", RefusedFile("gzip file is damaged")),
    Case("gzip of nothing", "a.csv.gz", gzip.compress(b""), RefusedFile("zero bytes")),
    Case("gzip of gzip", "a.csv.gz", gzip.compress(gzip.compress(CSV)), RefusedFile("packed twice, not csv; land")),
    Case("gzip by another name", "a.csv", gzip.compress(CSV), BOTH),
    Case("plain by the name of gzip", "a.csv.gz", CSV, BOTH),
    Case("Zstandard", "a.csv.zst", zstandard.compress(CSV), BOTH),
    Case("Zstandard in two frames", "a.csv.zst", zstandard.compress(CSV[:20]) + zstandard.compress(CSV[20:]), BOTH),
    Case("Zstandard, cut off", "a.csv.zst", zstandard.compress(CSV)[:-4], RefusedFile("Zstandard file is cut off")),
    Case(
        "Zstandard, with garbage behind",
        "a.csv.zst",
        zstandard.compress(CSV) + b"garbage",
        RefusedFile("Zstandard file is damaged"),
    ),
    Case("JSON lines in gzip", "a.jsonl.gz", gzip.compress(JSONL), BOTH),
    Case("Parquet in Zstandard", "a.parquet.zst", zstandard.compress(PARQUET), BOTH),
    Case("no suffix", "a", CSV, RefusedFile("does not show its format; name it")),
    Case("zip", "a.csv", b"PK\x03\x04" + CSV, RefusedFile("zip archive or an Excel workbook, not csv; land it as csv")),
    Case("Parquet by the name of csv", "a.csv", PARQUET, RefusedFile("the file is Parquet, not csv; land it as csv")),
    Case("csv by the name of Parquet", "a.parquet", CSV, RefusedFile("not Parquet, whatever its name; land it")),
    Case("csv by the name of JSON lines", "a.jsonl", CSV, RefusedFile("line 1 is not JSON")),
)
