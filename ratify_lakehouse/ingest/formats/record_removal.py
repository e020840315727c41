"""Writes a landed file again without some of its records; the others stay as they are.

Text: byte for byte, in the file's encoding and compression. Parquet: by DuckDB, with the same columns and codec. Where that
cannot be shown to be so, by reading what was written, there is no file.
"""

import codecs
import gzip
import hashlib
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import Format, Source
from ratify_lakehouse.ingest.formats.file_fields import Raw
from ratify_lakehouse.ingest.formats.file_readers import csv_header, reading
from ratify_lakehouse.ingest.formats.text_records import csv_records, json_records
from ratify_lakehouse.ingest.formats.unpacked_file import Packing, file_chunks, packing_of, plain_chunks, unpacked
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from ratify_lakehouse.sql.subject_match import VALUE

if TYPE_CHECKING:
    import duckdb

_ROW, _HASH, _REMOVED = '"ratify row"', '"ratify hash"', "ratify_removed"
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4_RAW"})


@dataclass(frozen=True)
class ChosenRecords:
    """Which records are removed: those of a subject.

    Attributes:
        columns: Those of the table that the condition is about, with their types.
        condition: DuckDB's; the value is the parameter `VALUE`.
        value: The subject's.
    """

    columns: Sequence[Column]
    condition: str
    value: str

    def __repr__(self) -> str:
        # So that no log has the value.
        return f"ChosenRecords({', '.join(column.name for column in self.columns)})"


@dataclass(frozen=True)
class Removal:
    """How many records were removed from a file, and how many are left."""

    removed: int
    left: int


def remove_records(
    con: "duckdb.DuckDBPyConnection", source: Source, file: str, local: Path, into: Path, chosen: ChosenRecords
) -> Removal:
    """Write a landed file again without the records of a subject.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        file: Its name in the landing zone.
        local: Where its bytes are.
        into: File to write, unless none or all of the records are the subject's; temporary files are created beside it.
        chosen: Which records.

    Raises:
        BadFile: it cannot be read, or not be written as it was; `into` does not exist then.
    """
    try:
        return _RecordWriting(con, source, file, local, into, chosen).written()
    except BaseException:
        into.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class _ReadRecords:
    """A file's records: how many, the numbers of the subject's, from 1, and a hash over the others, in their order."""

    total: int
    chosen: Sequence[int]
    others: int


@dataclass(frozen=True)
class _RecordWriting:
    """A file that is written again."""

    con: "duckdb.DuckDBPyConnection"
    source: Source
    file: str
    local: Path
    into: Path
    chosen: ChosenRecords

    def written(self) -> Removal:
        before = self._records(self.local)
        removal = Removal(len(before.chosen), before.total - len(before.chosen))
        if not removal.removed or not removal.left:
            return removal
        shorter = self.into.with_name(f"{self.into.name}.shorter")
        try:
            with unpacked(self.source, self.file, self.local, self.into.parent) as (form, plain):
                if form is Format.PARQUET:
                    self._write_parquet(plain, shorter, before)
                    chunks: Iterable[bytes] = file_chunks(shorter)
                else:
                    self._check_unchanged(plain)
                    self._write_text(form, plain, shorter, before)
                    chunks = self._encoded(shorter)
                _pack(chunks, packing_of(self.local), self.into)
        finally:
            shorter.unlink(missing_ok=True)
        after = self._records(self.into)
        if (after.total, len(after.chosen), after.others) != (removal.left, 0, before.others):
            raise self._refusal("its other records would not be the same")
        return removal

    def _refusal(self, why: str) -> BadFile:
        return BadFile(self.file, f"it cannot be written again as it was: {why}")

    def _records(self, local: Path) -> _ReadRecords:
        # Of JSON, the whole record is compared; of the others, each field.
        form = self.source.format_of(self.file)
        wanted = {column.name.lower() for column in self.chosen.columns} if form is Format.JSONL else None
        value = {VALUE: self.chosen.value}
        with reading(self.con, self.source, self.file, local, self.into.parent, wanted) as raw:
            condition, records = self.chosen.condition, self._select(raw, form)
            totals = self.con.execute(f"SELECT count(*) FROM ({records})").fetchall()
            rows = self.con.execute(f"SELECT {_ROW} FROM ({records}) WHERE {condition} ORDER BY {_ROW}", value).fetchall()
            others = f"SELECT row_number() OVER (ORDER BY {_ROW}) AS place, {_HASH} FROM ({records}) WHERE NOT ({condition})"
            hashes = self.con.execute(f"SELECT sum(hash(place, {_HASH})::HUGEINT) FROM ({others})", value).fetchall()
        return _ReadRecords(totals[0][0], [row for (row,) in rows], hashes[0][0] or 0)

    def _select(self, raw: Raw, form: Format | None) -> str:
        fields = raw.fields.values()
        whole = "CAST(json AS VARCHAR)" if form is Format.JSONL else ", ".join(field.text for field in fields)
        named = "".join(
            f", {field.as_type(sql_type(column.type)) if field else 'CAST(NULL AS VARCHAR)'} AS {identifier(column.name)}"
            for column in self.chosen.columns
            for field in [raw.fields.get(column.name.lower())]
        )
        return f"SELECT {raw.row} AS {_ROW}, hash({whole or 0}) AS {_HASH}{named} FROM {raw.relation}"

    def _write_text(self, form: Format, plain: Path, into: Path, before: _ReadRecords) -> None:
        chosen, count, at = frozenset(before.chosen), 0, 0
        with (
            plain.open("rb") as stream,
            closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as text,
            memoryview(text) as bytes_,
            into.open("wb") as target,
        ):
            try:
                for count, (start, end) in enumerate(self._spans(form, plain, text), 1):
                    if count in chosen:
                        target.write(bytes_[at:start])
                        at = end
            except ValueError as error:
                raise self._refusal(str(error)) from error
            target.write(bytes_[at:])
        if count != before.total:
            raise self._refusal(f"it has {count:,} records by their line ends, and {before.total:,} as it is loaded")

    def _spans(self, form: Format, plain: Path, text: mmap.mmap) -> Iterator[tuple[int, int]]:
        if form is Format.JSONL:
            return json_records(text)
        return csv_records(text, self.source.csv, len(csv_header(self.source, self.file, plain)))

    def _encoded(self, plain: Path) -> Iterator[bytes]:
        """A text in UTF-8 as the landed file is encoded."""
        encoding = codecs.lookup(self.source.encoding).name
        if encoding != "utf-8":
            encoder, decoder = codecs.getincrementalencoder(encoding)(), codecs.getincrementaldecoder("utf-8")()
            return (encoder.encode(decoder.decode(chunk)) for chunk in file_chunks(plain))
        head = next(plain_chunks(self.local), b"")
        with plain.open("rb") as stream:
            lacks = head.startswith(codecs.BOM_UTF8) and stream.read(3) != codecs.BOM_UTF8
        return chain([codecs.BOM_UTF8] if lacks else [], file_chunks(plain))

    def _check_unchanged(self, plain: Path) -> None:
        """Check that the landed file is what would be written of all of its records."""
        if _digest(self._encoded(plain)) != _digest(plain_chunks(self.local)):
            raise self._refusal(f"as {self.source.encoding} it would have other bytes")

    def _write_parquet(self, plain: Path, into: Path, before: _ReadRecords) -> None:
        path = literal(str(plain))
        counted = "SELECT compression, count(*) FROM parquet_metadata({}) GROUP BY ALL"
        codec_counts = Counter[str](dict(self.con.execute(counted.format(path)).fetchall()))
        ((codec, _),) = codec_counts.most_common(1)
        if codec not in _CODECS:
            raise self._refusal(f"DuckDB does not write the compression {codec}")
        rows = f"FROM read_parquet({path}, file_row_number = true, hive_partitioning = false)"
        removed = f"CREATE OR REPLACE TEMP TABLE {_REMOVED} AS SELECT unnest(?::BIGINT[]) AS row"
        self.con.execute(removed, [list(before.chosen)])
        others = f"SELECT * EXCLUDE (file_row_number) {rows} WHERE file_row_number + 1 NOT IN (SELECT row FROM {_REMOVED})"
        try:
            self.con.execute(f"COPY ({others}) TO {literal(str(into))} (FORMAT parquet, COMPRESSION {codec.lower()})")
            if self._columns(plain) != self._columns(into):
                raise self._refusal("its columns would have other types")
        finally:
            self.con.execute(f"DROP TABLE IF EXISTS {_REMOVED}")

    def _columns(self, parquet: Path) -> list[tuple[str, str]]:
        described = f"DESCRIBE FROM read_parquet({literal(str(parquet))}, hive_partitioning = false)"
        return [(name, held) for name, held, *_ in self.con.execute(described).fetchall()]


def _digest(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _pack(chunks: Iterable[bytes], packing: Packing, into: Path) -> None:
    """Write bytes as they were packed; the same bytes are always packed alike, so that a repeated rewrite is the same."""
    with into.open("wb") as target:
        if packing is Packing.GZIP:
            with gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
                for chunk in chunks:
                    packed.write(chunk)
        elif packing is Packing.ZSTD:
            import zstandard

            with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as packed:
                for chunk in chunks:
                    packed.write(chunk)
        else:
            for chunk in chunks:
                target.write(chunk)
