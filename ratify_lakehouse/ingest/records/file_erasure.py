"""Files of records without those of a subject: which files have some, and how they are written again.

A file that was read is known by its name, and is not read again, so that it may be written again at any time.
"""

import bz2
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.records.file_records import FileSource, json_path
from ratify_lakehouse.input_settings import Events
from ratify_lakehouse.landing.file_moves import Moved, delete, overwrite
from ratify_lakehouse.landing.landing_zone import LandedFile, landed
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.subject_match import VALUE, Match

# JSON may write any letter by its number, and has to escape some.
_ESCAPE = b"\\"
# Each is what Spark's source takes a file with that suffix for. The same bytes are always packed alike.
_CODECS = {".gz": (gzip.decompress, lambda data: gzip.compress(data, mtime=0)), ".bz2": (bz2.decompress, bz2.compress)}
_OTHERS = frozenset({".deflate", ".lz4", ".snappy", ".zst", ".lzo"})


@dataclass(frozen=True)
class SubjectFiles:
    """Files of records, as far as they have some of a subject.

    Attributes:
        source: The files.
        duckdb: Compares.
        matches: How records of the subject are known.
        value: The subject's.
    """

    source: FileSource
    duckdb: DuckDB
    matches: Sequence[Match]
    value: str

    def __repr__(self) -> str:
        # So that no log has the value.
        return f"SubjectFiles({self.source.zone.root})"

    def holding(self) -> Iterator[tuple[LandedFile, str | BadFile]]:
        """Yield the files that have records of the subject, each with the reason why it cannot be written again, if any.

        One that may have some, but cannot be looked through, comes with the error.

        Raises:
            LandingUnavailable: they cannot be read.
        """
        with scratch_folder(self.duckdb.home) as scratch, self.duckdb.session() as session:
            for listed in self.source.files():
                file = landed(listed)
                local = self.source.zone.fetch(file.path, scratch).local
                try:
                    if self._numbers(session, self._lines(file.path, local)):
                        yield file, ""
                except BadFile as error:
                    yield file, error.reason if self.value.encode() in local.read_bytes() else error
                finally:
                    local.unlink()

    def rewrite(self, path: str) -> int | None:
        """Write a file again without the records of the subject, or delete it where it has no others.

        Returns:
            How many records were removed; None if the file is gone, or was changed by others meanwhile.

        Raises:
            BadFile: it cannot be read.
            LandingUnavailable: it cannot be read or written.
        """
        zone = self.source.zone
        with scratch_folder(self.duckdb.home) as scratch, self.duckdb.session() as session:
            if not (present := zone.look([path])):
                return None
            local = zone.fetch(path, scratch).local
            lines = self._lines(path, local)
            numbers = self._numbers(session, lines)
            others = [line for number, line in enumerate(lines) if number not in numbers]
            if not others:
                done = delete(zone, path, present[0].fingerprint)
            else:
                data = b"".join(others)
                local.write_bytes(_CODECS[codec][1](data) if (codec := _codec(path)) else data)
                done = overwrite(zone, path, present[0].fingerprint, local)
            return len(numbers) if done is Moved.DONE else None

    def _lines(self, path: str, local: Path) -> list[bytes]:
        """The lines, each with its end."""
        if Path(path).suffix in _OTHERS:
            raise BadFile(path, f"files packed as {Path(path).suffix} are not searched")
        try:
            data = _CODECS[codec][0](local.read_bytes()) if (codec := _codec(path)) else local.read_bytes()
        except (OSError, EOFError, ValueError) as error:
            raise BadFile(path, f"it cannot be unpacked ({type(error).__name__})") from error
        *whole, rest = data.split(b"\n")
        return [*(line + b"\n" for line in whole), *([rest] if rest else [])]

    def _numbers(self, session: DuckDBSession, lines: Sequence[bytes]) -> set[int]:
        """The numbers of the subject's lines."""
        wanted = self.value.encode()
        found = [(number, line) for number, line in enumerate(lines) if wanted in line or _ESCAPE in line]
        if not found:
            return set()
        key, value = _record(self.source.events)
        condition = " OR ".join(match.duckdb for match in self.matches)
        query = (
            "WITH given AS (SELECT unnest($numbers) AS number, unnest($lines) AS line), "
            "lines AS (SELECT number, try(decode(line)) AS text FROM given), "
            f"records AS (SELECT number, encode({key}) AS key, encode({value}) AS value FROM lines) "
            f"SELECT number FROM records WHERE {condition}"
        )
        given_lines = {"numbers": [number for number, _ in found], "lines": [line.rstrip(b"\r\n") for _, line in found]}
        rows = session.con.execute(query, {**given_lines, VALUE: self.value}).fetchall()
        return {number for (number,) in rows}


def _codec(path: str) -> str:
    return suffix if (suffix := Path(path).suffix) in _CODECS else ""


def _record(events: Events) -> tuple[str, str]:
    """DuckDB's expressions for the key and the value of the record in a line, `text`, as FileSource reads them."""
    if events.format == "json":
        return _field(json_path(events.key)) if events.key else "NULL", "text"
    wrapped = " AND ".join(f"{_field(f'$.{name}')} IS NOT NULL" for name in ("topic", "partition", "offset"))
    key, payload = _field("$.key"), _field("$.payload")
    return f"CASE WHEN {wrapped} THEN {key} END", f"CASE WHEN {wrapped} THEN {payload} ELSE text END"


def _field(path: str) -> str:
    return f"try(json_extract_string(text, {literal(path)}))"
