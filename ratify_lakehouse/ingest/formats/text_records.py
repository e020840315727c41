"""Where the records of a text file begin and end, in bytes: as DuckDB counts them, which a caller has to compare."""

import re
from collections.abc import Iterator
from mmap import mmap

from ratify_lakehouse.ingest.file_source import CsvDialect

Span = tuple[int, int]
"""Of a record with its line end: the place of its first byte, and that behind its last one."""

_BOM = b"\xef\xbb\xbf"


def json_records(text: mmap) -> Iterator[Span]:
    """Return the records of a file of JSON lines in UTF-8: its lines, without empty ones."""
    for line in re.finditer(rb"[^\n]*\n?", text):
        if line.group().strip():
            yield line.span()


def csv_records(text: mmap, dialect: CsvDialect, columns: int) -> Iterator[Span]:
    """Return the records of a CSV file in UTF-8, without its header line.

    Args:
        text: The file.
        dialect: How it is written.
        columns: How many it has: of one with several, empty lines are no records.

    Raises:
        ValueError: a quoted value is not closed, or something follows it.
    """
    record, header = _record(dialect), dialect.header
    at, end = (len(_BOM) if text[: len(_BOM)] == _BOM else 0), len(text)
    while at < end:
        found = record.match(text, at)
        if found is None:
            raise ValueError(f"its quotes are not closed from byte {at + 1:,} on")
        empty = found.end("values") == at and columns > 1
        if not header and not empty:
            yield found.span()
        header = header and empty
        at = found.end()


def _record(dialect: CsvDialect) -> re.Pattern[bytes]:
    delimiter, quote, escape = (each.encode() for each in (dialect.delimiter, dialect.quote, dialect.escape))
    value = b"(?:%s)*+" % _none_of(delimiter, b"\r", b"\n")
    if quote:
        escaped = re.escape(escape or quote) + (b"(?s:.)" if escape not in (b"", quote) else re.escape(quote))
        value = b"(?:%s(?:%s|%s)*+%s|%s)" % (
            re.escape(quote),
            escaped,
            _none_of(quote, escape or quote),
            re.escape(quote),
            b"(?!%s)%s" % (re.escape(quote), value),
        )
    return re.compile(rb"(?P<values>%s(?:%s%s)*+)(?:\r\n|\n|\r|\Z)" % (value, re.escape(delimiter), value))


def _none_of(*texts: bytes) -> bytes:
    """A byte at which none of these begins."""
    if all(len(text) == 1 for text in texts):
        return b"[^%s]" % b"".join(re.escape(text) for text in texts)
    return b"(?!%s)(?s:.)" % b"|".join(map(re.escape, texts))
