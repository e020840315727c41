"""Read one landed CSV file strictly: either every record is understood, or the file is refused with a reason."""

import codecs
import re
from pathlib import Path
from typing import TYPE_CHECKING

from assets.bronze.sources import Source
from resources.errors import BadFile
from resources.sql import literal

if TYPE_CHECKING:
    import duckdb

_HEADER_LIMIT = 64 * 1024
_LINE_LIMIT = 2 * 1024 * 1024
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def stage(con: "duckdb.DuckDBPyConnection", source: Source, path: str, local: Path, into: str) -> int:
    """Parse a file and add its records to a local table: the source's columns as text, then `_source_file`, `_source_row`.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        path: The file's name in the landing zone.
        local: Where its bytes are.
        into: Local table; it is left as it was if the file is refused.

    Returns:
        Number of records.

    Raises:
        BadFile: zero bytes, another encoding than UTF-8, a wrong header, a line that is too long, too many or too few
            columns, or an end that is cut off.
    """
    import duckdb

    _check_bytes(path, local)
    _check_header(source, path, local)
    _check_lines(path, local)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in source.header)
    try:
        added = con.execute(
            f"INSERT INTO {into} SELECT *, {literal(path)}, row_number() OVER () FROM read_csv({literal(str(local))}, "
            f"columns = {{{columns}}}, header = true, auto_detect = false, strict_mode = true, delim = ',', quote = '\"', "
            f"escape = '\"', nullstr = '', max_line_size = {_LINE_LIMIT}, null_padding = false)"
        ).fetchone()
    except duckdb.Error as error:
        raise BadFile(path, _reason(error)) from error
    return int(added[0]) if added else 0


def _check_bytes(path: str, local: Path) -> None:
    size = local.stat().st_size
    if size == 0:
        raise BadFile(path, "the file has zero bytes; land it again")
    with local.open("rb") as file:
        head = file.read(4)
        file.seek(-1, 2)
        last = file.read(1)
    if head.startswith(_UTF16) or head[1:2] == b"\0" or head[:1] == b"\0":
        raise BadFile(path, "the file is UTF-16; land it as UTF-8")
    if last != b"\n":
        raise BadFile(path, "the last line is cut off: it has no line end; land the whole file again")


def _check_header(source: Source, path: str, local: Path) -> None:
    with local.open("rb") as file:
        line = file.readline(_HEADER_LIMIT)
    if not line.endswith(b"\n"):
        raise BadFile(path, f"the first line is longer than {_HEADER_LIMIT:,} bytes: this is not a CSV file with a header")
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadFile(path, f"the header is not UTF-8 (byte {error.start}); land it as UTF-8") from error
    found = tuple(name.strip().strip('"') for name in text.split(","))
    if found == source.header:
        return
    if extra := [name for name in found if name not in source.header]:
        raise BadFile(path, f"the header has columns that are not expected: {', '.join(extra)[:200]}")
    if missing := [name for name in source.header if name not in found]:
        raise BadFile(path, f"the header lacks columns: {', '.join(missing)[:200]}")
    raise BadFile(path, f"the header's columns are in another order: expected {','.join(source.header)}")


def _check_lines(path: str, local: Path) -> None:
    # DuckDB's own bound on a line does not hold where the line is longer than its read buffer.
    with local.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LINE_LIMIT + 1), b""), 1):
            if len(line) > _LINE_LIMIT:
                raise BadFile(path, f"line {number}: a line is longer than {_LINE_LIMIT:,} bytes")


_CAUSES = (
    ("Maximum line size", f"a line is longer than {_LINE_LIMIT:,} bytes"),
    ("Expected Number of Columns", "a line has another number of columns than the header"),
    ("unterminated quote", "a quoted value is not closed"),
    ("invalid state", "its lines end in different ways (CRLF, LF, CR), or a value holds a line end without quotes"),
    ("nicode", "a value is not UTF-8"),
    ("UTF-8", "a value is not UTF-8"),
)


def _reason(error: Exception) -> str:
    text = str(error)
    cause = next((said for mark, said in _CAUSES if mark in text), text.splitlines()[0][:200])
    line = re.search(r"CSV Error on Line: (\d+)", text)
    return f"line {line.group(1)}: {cause}" if line else cause
