"""A landed file's bytes as DuckDB can read them: unpacked, in UTF-8, and whole.

DuckDB reads gzip and Zstandard itself, but treats a file that is cut off, or whose checksum is wrong, as the end of the
data: half of the rows, and no error. So this module unpacks files.
"""

import codecs
import gzip
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import IO

from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import Format, Source

LINE_LIMIT = 2 * 1024 * 1024
"""Bytes in a line at most."""

_CHUNK = 1 << 20
# A few bytes of Zstandard can expand to 128 KiB, and a chunk is unpacked at once.
_ZSTD_CHUNK = 1 << 12
_UNPACKED_LIMIT = 16 << 30
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OTHER_FORMATS = (
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook"),
    (b"%PDF", "a PDF document"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"BZh", "packed by bzip2"),
    (b"\xfd7zXZ", "packed by xz"),
    (_GZIP, "packed twice"),
    (_ZSTD, "packed twice"),
)


class Packing(Enum):
    """How a landed file is compressed as a whole."""

    NONE = b""
    GZIP = _GZIP
    ZSTD = _ZSTD


def packing_of(local: Path) -> Packing:
    """Return how a file is compressed, by its first bytes."""
    head = _head(local, 4)
    return next((packing for packing in (Packing.GZIP, Packing.ZSTD) if head.startswith(packing.value)), Packing.NONE)


def plain_chunks(local: Path) -> Iterator[bytes]:
    """Return the bytes of a file, or those that it was compressed from; `unpacked` says whether they are whole.

    Raises:
        EOFError, ValueError: it is cut off, or damaged.
    """
    match packing_of(local):
        case Packing.GZIP:
            return _gunzipped(local)
        case Packing.ZSTD:
            return _unzstd(local)
        case Packing.NONE:
            return file_chunks(local)


@contextmanager
def unpacked(source: Source, file: str, local: Path, scratch: Path | None) -> Generator[tuple[Format, Path]]:
    """Yield the format of a landed file, and a file with its bytes unpacked and in UTF-8, which is often the file itself.

    Its bytes decide whether it is compressed: tools unpack or pack files in transit without renaming them.

    Args:
        source: What the file must look like.
        file: Its name in the landing zone.
        local: Where its bytes are.
        scratch: Folder for a temporary file; None: that of the system.

    Raises:
        BadFile: its format is not known, it is empty, cut off, of another format or encoding, or has too long a line.
    """
    form = source.format_of(file)
    if form is None:
        raise BadFile(file, "its name does not show its format; name it .csv, .jsonl or .parquet, or declare the format")
    with ExitStack() as stack:

        def written(chunks: Iterable[bytes]) -> Path:
            temporary = stack.enter_context(tempfile.NamedTemporaryFile(prefix="ratify-unpacked-", dir=scratch))
            _write(file, chunks, temporary)
            return Path(temporary.name)

        plain = _plain(file, local, written)
        if form is Format.PARQUET:
            _check_parquet(file, plain)
        else:
            plain = _text(source, form, file, plain, written)
        yield form, plain


def _plain(file: str, local: Path, written: Callable[[Iterable[bytes]], Path]) -> Path:
    """The file itself, or what it was compressed from."""
    plain, packing = local, packing_of(local)
    if packing is not Packing.NONE:
        name = "gzip" if packing is Packing.GZIP else "Zstandard"
        try:
            plain = written(plain_chunks(local))
        except EOFError as error:
            raise BadFile(file, f"the {name} file is cut off; land the whole file again") from error
        except ValueError as error:
            raise BadFile(file, f"the {name} file is damaged ({error}); land it again") from error
    if plain.stat().st_size == 0:
        raise BadFile(file, "the file has zero bytes; land it again")
    return plain


def file_chunks(local: Path) -> Iterator[bytes]:
    """Yield the bytes of a file as it is."""
    with local.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _gunzipped(local: Path) -> Iterator[bytes]:
    with gzip.open(local) as stream:
        try:
            while chunk := stream.read(_CHUNK):
                yield chunk
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(str(error)) from error


def _unzstd(local: Path) -> Iterator[bytes]:
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    with local.open("rb") as stream:
        while chunk := stream.read(_ZSTD_CHUNK):
            while chunk:
                try:
                    yield frame.decompress(chunk)
                except zstandard.ZstdError as error:
                    raise ValueError(str(error)) from error
                begun, chunk = not frame.eof, frame.unused_data
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
    if begun:
        raise EOFError


def _write(file: str, chunks: Iterable[bytes], into: IO[bytes]) -> None:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _UNPACKED_LIMIT:
            raise BadFile(file, f"unpacked, the file has more than {_UNPACKED_LIMIT:,} bytes; land it in parts")
        into.write(chunk)
    into.flush()


def _check_parquet(file: str, plain: Path) -> None:
    head = _head(plain, 4)
    if head == b"PARE":
        raise BadFile(file, "the Parquet file is encrypted; land it without encryption")
    if head != b"PAR1":
        raise BadFile(file, "the file is not Parquet, whatever its name; land it in the format that is declared")
    with plain.open("rb") as stream:
        stream.seek(-4, 2)
        if stream.read() != b"PAR1" or stream.tell() < 12:
            raise BadFile(file, "the Parquet file is cut off: its footer is missing; land the whole file again")


def _text(source: Source, form: Format, file: str, plain: Path, written: Callable[[Iterable[bytes]], Path]) -> Path:
    head = _head(plain, 8)
    if other := next((name for magic, name in _OTHER_FORMATS if head.startswith(magic)), None):
        raise BadFile(file, f"the file is {other}, not {form}; land it as {form}, or with the name of its format")
    encoding = codecs.lookup(source.encoding).name
    if encoding == "utf-8":
        if head.startswith(_UTF16) or head[1:2] == b"\0" or head[:1] == b"\0":
            raise BadFile(file, "the file is UTF-16; land it as UTF-8, or declare its encoding")
        # DuckDB skips a byte order mark before CSV, and refuses it before JSON.
        encoding = "utf-8-sig" if form is Format.JSONL and head.startswith(codecs.BOM_UTF8) else ""
    if encoding:
        plain = written(_as_utf8(file, plain, encoding))
    _check_lines(file, plain)
    if form is Format.CSV and not source.last_line_open:
        _check_end(file, plain)
    return plain


def _as_utf8(file: str, plain: Path, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    with plain.open("rb") as stream:
        while True:
            chunk = stream.read(_CHUNK)
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                raise BadFile(file, f"the file is not {encoding} ({error}); declare its encoding") from error
            yield text.encode()
            if not chunk:
                return


def _check_end(file: str, plain: Path) -> None:
    with plain.open("rb") as stream:
        stream.seek(0, 2)
        if stream.tell():
            stream.seek(-1, 2)
        if stream.read(1) != b"\n":
            raise BadFile(file, "the last line is cut off: it has no line end; land the whole file again")


def _check_lines(file: str, plain: Path) -> None:
    # DuckDB's own bound on a line does not hold where the line is longer than its read buffer. A line over the limit
    # covers one of these chunks, so that of most files only a few bytes in each are looked at.
    chunk = LINE_LIMIT // 2
    with plain.open("rb", buffering=0) as stream:
        for start in range(0, plain.stat().st_size - chunk + 1, chunk):
            stream.seek(start)
            if b"\n" in stream.read(4096):
                continue
            stream.seek(start)
            if b"\n" not in stream.read(chunk):
                break
        else:
            return
    with plain.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LINE_LIMIT + 1), b""), 1):
            if len(line) > LINE_LIMIT:
                raise BadFile(file, f"line {number}: a line is longer than {LINE_LIMIT:,} bytes; is its end missing?")


def _head(local: Path, size: int) -> bytes:
    with local.open("rb") as stream:
        return stream.read(size)
