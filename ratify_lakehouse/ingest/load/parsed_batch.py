"""The rows of a load batch's files, as Parquet: small CSV files of one kind in one pass, all others one by one.

Rows of erased subjects are dropped from each file, which is then parsed alone.

A pass over several files knows no reasons: where it fails, each half is tried, and in the end a file alone. So a damaged
file is refused with its own reason, and costs the others a few passes.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.parquet_files import ParquetFile, write_parquet
from ratify_lakehouse.errors import BadFile, RatifyError
from ratify_lakehouse.ingest.file_source import RESCUED, Format, Source
from ratify_lakehouse.ingest.formats.csv_group import CsvFile, csv_file
from ratify_lakehouse.ingest.formats.isolated_parsing import parse, parse_group
from ratify_lakehouse.ingest.formats.parse_file import ColumnsToAdd, Load, NewNames, Parsed
from ratify_lakehouse.ingest.formats.unpacked_file import unpacked
from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.load.erased_subjects import ErasedRows
from ratify_lakehouse.ingest.load.file_batches import batches
from ratify_lakehouse.ingest.load.landed_table import present_table
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.sql.duckdb_sql import literal

_SMALL_BYTES = 2 << 20
_FILES_AT_ONCE = 200
_BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True)
class _Fetched:
    """A landed file's bytes, and what is known of it so far."""

    outcome: FileOutcome
    local: Path

    def refused(self, reason: str, seconds: float) -> FileOutcome:
        return replace(self.outcome, status=Status.REFUSED, reason=reason, seconds=self.outcome.seconds + seconds)

    def read(self, rows: int, rescued: int, seconds: float) -> FileOutcome:
        return replace(self.outcome, rows=rows, rescued=rescued, seconds=self.outcome.seconds + seconds)


@dataclass(frozen=True)
class _Part:
    """A Parquet file with the rows of some landed files."""

    parquet: Path
    written: ParquetFile
    files: frozenset[str]


@dataclass
class ParsedBatch:
    """A batch while it is loaded.

    Attributes:
        erased: Which rows are dropped; None: none.
        fence: The table's before the list of these was read.
        columns: Those of the table.
        dropped: How many rows were dropped.
    """

    session: DuckDBSession
    landing: LandingZone
    source: Source
    load: Load
    folder: Path
    erased: ErasedRows | None = None
    fence: str | None = None
    columns: tuple[Column, ...] = ()
    dropped: int = 0
    _parts: list[_Part] = field(default_factory=list[_Part])

    def __post_init__(self) -> None:
        self.columns = self._present_columns()

    def _present_columns(self) -> tuple[Column, ...]:
        return present_table(self.session, self.source).columns

    def parse(self, files: Sequence[LandedFile]) -> list[FileOutcome]:
        """Fetch landed files and write their rows as Parquet; return what became of each, in their order.

        Raises:
            LandingUnavailable: a file cannot be read.
        """
        outcomes = dict[str, FileOutcome]()
        for some in batches(files, _FILES_AT_ONCE, _BYTES_AT_ONCE):
            with ExitStack() as opened:
                groups = dict[tuple[object, ...], dict[CsvFile, _Fetched]]()
                for file in some:
                    fetched = self._fetch(file)
                    if csv := self._small_csv(opened, fetched):
                        groups.setdefault(csv.group, {})[csv] = fetched
                    else:
                        outcomes[file.path] = self._parse_one(fetched)
                for group in groups.values():
                    outcomes |= {outcome.path: outcome for outcome in self._parse_group(group)}
        return [outcomes[file.path] for file in files]

    def _fetch(self, file: LandedFile) -> _Fetched:
        began = time.monotonic()
        fetched = self.landing.fetch(file.path, self.folder)
        outcome = FileOutcome(
            file.path,
            file.fingerprint,
            self.source.content_of(file.path, fetched.sha256, file.fingerprint),
            fetched.size,
            self.load.batch_id,
            landed_at=file.modified_at,
        )
        return _Fetched(replace(outcome, seconds=time.monotonic() - began), fetched.local)

    def _small_csv(self, opened: ExitStack, fetched: _Fetched) -> CsvFile | None:
        """The file as part of a group, until `opened` ends; None if it is to be parsed alone.

        A file that adds columns is: those behind it find them. A list is, too: each has values of its own.
        """
        path = fetched.outcome.path
        named = any(column.name == "_source_file" for column in self.columns)
        large = fetched.outcome.size > _SMALL_BYTES
        if self.erased or self.source.lists or not named or self.source.format_of(path) is not Format.CSV or large:
            return None
        try:
            with ExitStack() as stack:
                _, plain = stack.enter_context(unpacked(self.source, path, fetched.local, self.folder))
                if plain.stat().st_size > _SMALL_BYTES:
                    return None
                csv = csv_file(self.source, self.columns, path, plain)
                opened.enter_context(stack.pop_all())
                return csv
        except (BadFile, NewNames):
            return None

    def _parse_group(self, group: dict[CsvFile, _Fetched]) -> list[FileOutcome]:
        """Parse files in one pass, or where that fails each half of them."""
        import duckdb

        if len(group) == 1:
            return [self._parse_one(fetched) for fetched in group.values()]
        began, parquet = time.monotonic(), self.folder / f"{uuid4().hex}.parquet"
        try:
            parsed = parse_group(self.session.con, self.source, self.columns, list(group), parquet, self.load)
        except (duckdb.Error, RatifyError):
            csvs = list(group)
            halves = csvs[: len(csvs) // 2], csvs[len(csvs) // 2 :]
            return [outcome for half in halves for outcome in self._parse_group({csv: group[csv] for csv in half})]
        for fetched in group.values():
            fetched.local.unlink()
        self._parts.append(_Part(parquet, parsed.written, frozenset(csv.file for csv in group)))
        share = (time.monotonic() - began) / len(group)
        return [fetched.read(*counts, share) for fetched, counts in zip(group.values(), parsed.counts, strict=True)]

    def _parse_one(self, fetched: _Fetched) -> FileOutcome:
        began, path, parquet = time.monotonic(), fetched.outcome.path, fetched.local.with_suffix(".parquet")
        try:
            parsed = self._without_erased(self._parsed(fetched, parquet), parquet)
        except BadFile as error:
            return fetched.refused(error.reason, time.monotonic() - began)
        finally:
            fetched.local.unlink()
        self._parts.append(_Part(parquet, parsed.written, frozenset([path])))
        return fetched.read(parsed.written.rows, parsed.rescued, time.monotonic() - began)

    def _parsed(self, fetched: _Fetched, parquet: Path) -> Parsed:
        path, load = fetched.outcome.path, replace(self.load, landed_at=fetched.outcome.landed_at)
        try:
            parsed = parse(self.session.con, self.source, self.columns, path, fetched.local, parquet, load)
        except ColumnsToAdd as error:
            self.session.add_columns(self.source.table, error.columns)
            self.columns = self._present_columns()
            parsed = parse(self.session.con, self.source, self.columns, path, fetched.local, parquet, load)
        if self.source.lists and not parsed.written.rows:
            raise BadFile(path, "it has no rows, and as a list it would end all that are current; land the whole list")
        return parsed

    def _without_erased(self, parsed: Parsed, parquet: Path) -> Parsed:
        con = self.session.con
        if not self.erased or not (erased := self.erased.count(con, parquet)):
            return parsed
        others = parquet.with_name(f"{parquet.stem}-others.parquet")
        written = write_parquet(con, self.erased.others(parquet), others)
        others.replace(parquet)
        self.dropped += erased
        rescued = parsed.rescued
        if rescued:
            text = f"SELECT count({RESCUED.name}) FROM read_parquet({literal(str(parquet))})"
            rescued = int(con.execute(text).fetchall()[0][0])
        return replace(parsed, written=written, rescued=rescued)

    def staged(self, files: Sequence[FileOutcome]) -> Staged:
        """Return the rows of files as one pending append."""
        types = {column.name: sql_type(column.type).spark for column in self.columns}
        if not files:
            return Staged(self.folder / "none.parquet", 0, 0, (), types, {}, fence=self.fence)
        paths = {file.path for file in files}
        parts = [part for part in self._parts if not part.files.isdisjoint(paths)]
        whole = all(part.files <= paths for part in parts)
        if len(parts) == 1 and whole:
            parquet, written = parts[0].parquet, parts[0].written
        else:
            names = ", ".join(literal(str(part.parquet)) for part in parts)
            some = "" if whole else f" WHERE _source_file IN ({', '.join(map(literal, sorted(paths)))})"
            parquet = self.folder / "batch.parquet"
            select = f"FROM read_parquet([{names}], union_by_name = true){some}"
            written = write_parquet(self.session.con, select, parquet)
        return Staged(parquet, written.rows, written.size, (), types, written.stats, fence=self.fence)

    def columns_changed(self) -> bool:
        """Take over the table's present columns; return whether they are others."""
        before, self.columns = self.columns, self._present_columns()
        return self.columns != before
