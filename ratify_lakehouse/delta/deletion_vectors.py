"""Deletion vectors: which rows of a data file are deleted (PROTOCOL.md, "Deletion Vector Format" and "Descriptor Schema").

Delta stores them as 64-bit Roaring bitmaps in the portable format (github.com/RoaringBitmap/RoaringFormatSpec): 32-bit
bitmaps, each with the upper half of its numbers.
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from uuid import UUID

from ratify_lakehouse.delta.snapshot import Json
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.errors import LogUnreadable

_PORTABLE = 1681511377
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_MOST_IN_ARRAY = 4096
_NO_OFFSETS_BELOW = 4
_UUID_LETTERS = 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deleted_rows(storage: TableStorage, action: Json) -> Sequence[int]:
    """Return the numbers of the deleted rows of a file, from 0, ascending.

    Args:
        storage: The table's.
        action: The `add` or `remove` of the file.

    Raises:
        FileNotFoundError: the file of the deletion vector is gone.
        LogUnreadable: it is damaged, or stands outside of the table's folder.
        StorageUnavailable.
    """
    vector: Json | None = action.get("deletionVector")
    if not vector:
        return ()
    kind, where = vector["storageType"], vector["pathOrInlineDv"]
    try:
        content = decode_z85(where)[: vector["sizeInBytes"]] if kind == "i" else _stored(storage, vector)
        numbers = decode_bitmap(content)
    except (struct.error, ValueError, IndexError) as error:
        raise LogUnreadable(f"The deletion vector of {action['path']} is damaged: {error}. RESTORE the table.") from error
    if len(numbers) != vector["cardinality"]:
        raise LogUnreadable(
            f"The deletion vector of {action['path']} has {len(numbers)} rows, and the log says {vector['cardinality']}: "
            "RESTORE the table to a version before it."
        )
    return numbers


def _stored(storage: TableStorage, vector: Json) -> bytes:
    where = vector["pathOrInlineDv"]
    if vector["storageType"] != "u":
        raise LogUnreadable(f"The deletion vector {where} is outside of the table's folder: read the table with Spark.")
    prefix, encoded = where[:-_UUID_LETTERS], where[-_UUID_LETTERS:]
    name = f"deletion_vector_{UUID(bytes=decode_z85(encoded))}.bin"
    stored, at, size = storage.read(f"{prefix}/{name}" if prefix else name), vector.get("offset") or 0, vector["sizeInBytes"]
    (written,) = struct.unpack_from(">I", stored, at)
    content = stored[at + 4 : at + 4 + size]
    (checksum,) = struct.unpack_from(">I", stored, at + 4 + size)
    if written != size or zlib.crc32(content) != checksum:
        raise ValueError(f"{name} does not have the size or the checksum that it should have")
    return content


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text in Z85 (rfc.zeromq.org/spec/32): five letters are four bytes.

    Raises:
        ValueError: it is none.
    """
    groups = (text[start : start + 5] for start in range(0, len(text), 5))
    content = bytearray()
    for group in groups:
        number = 0
        for letter in group:
            number = number * 85 + _Z85.index(letter)
        content += struct.pack(">I", number)
    return bytes(content)


def decode_bitmap(content: bytes) -> Sequence[int]:
    """Return the numbers of a 64-bit Roaring bitmap, ascending.

    Raises:
        ValueError, struct.error: it is none in the portable format.
    """
    magic, bitmaps = struct.unpack_from("<IQ", content)
    if magic != _PORTABLE:
        raise ValueError(f"{magic} is not the number of the portable format, {_PORTABLE}")
    numbers, at = array("Q"), 12
    for _ in range(bitmaps):
        (upper,) = struct.unpack_from("<I", content, at)
        at = _decode_32_bits(content, at + 4, upper << 32, numbers)
    return numbers


def _decode_32_bits(content: bytes, at: int, base: int, numbers: "array[int]") -> int:
    """Append the numbers of the bitmap that begins at `at`, and return where it ends."""
    (cookie,) = struct.unpack_from("<I", content, at)
    at, runs = at + 4, b""
    if cookie & 0xFFFF == _WITH_RUNS:
        containers = (cookie >> 16) + 1
        runs = content[at : at + (containers + 7) // 8]
        at += len(runs)
    elif cookie == _WITHOUT_RUNS:
        (containers,) = struct.unpack_from("<I", content, at)
        at += 4
    else:
        raise ValueError(f"{cookie} begins no Roaring bitmap")
    headers = list(struct.iter_unpack("<HH", content[at : at + 4 * containers]))
    at += 4 * containers
    if not runs or containers >= _NO_OFFSETS_BELOW:
        at += 4 * containers
    for number, (key, less_one) in enumerate(headers):
        start = base + (key << 16)
        if runs and runs[number // 8] >> number % 8 & 1:
            at = _decode_runs(content, at, start, numbers)
        elif less_one < _MOST_IN_ARRAY:
            numbers.extend(start + low for low in _words(content, at, less_one + 1))
            at += 2 * (less_one + 1)
        else:
            bits = content[at : at + 8192]
            numbers.extend(start + 8 * i + bit for i, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1)
            at += 8192
    return at


def _decode_runs(content: bytes, at: int, start: int, numbers: "array[int]") -> int:
    (count,) = struct.unpack_from("<H", content, at)
    pairs = _words(content, at + 2, 2 * count)
    for first, more in zip(pairs[::2], pairs[1::2], strict=True):
        numbers.extend(range(start + first, start + first + more + 1))
    return at + 2 + 4 * count


def _words(content: bytes, at: int, count: int) -> "array[int]":
    words = array("H", content[at : at + 2 * count])
    if len(words) != count:
        raise ValueError("it ends too early")
    if sys.byteorder == "big":
        words.byteswap()
    return words
