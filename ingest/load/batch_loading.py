"""Load batches: landed files become rows of bronze, each file exactly once, one commit for the whole batch.

A file is known by its bytes. Two Delta `txn` app ids are written for each in the commit that brings its rows: one for its
content and one for its path. So the same bytes are never loaded twice, under whatever name or by however many writers at
once, and other bytes under a name that was loaded before meet the source's policy for rewritten files.

App ids expire, so that a commit costs the same after a million files: behind them stands the ledger of landed files, which
is asked for a file that is as old as that.
"""

import datetime as dt
import hashlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.file_source import Rewrite, SchemaMode, Source
from ingest.formats.inferred_columns import infer
from ingest.formats.parse_file import ColumnsToAdd, Load, Parsed, parse
from ingest.ledger.file_ledger import LEDGER, FileOutcome, LedgerEntry, Status, loaded_entries, record, withdraw
from resources.column_types import sql_type
from resources.declarations import Column
from resources.delta.snapshot import RETENTION, retention_seconds
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.duckdb.group_commit import Ratified, Staged
from resources.duckdb.parquet_files import ParquetFile, write_parquet
from resources.duckdb.row_replacement import replace_rows
from resources.errors import AlreadyLoaded, BadFile, TableMissing, UnsafeTable
from resources.landing.landing_zone import LandedFile, LandingZone
from resources.sql.duckdb_sql import literal

if TYPE_CHECKING:
    from resources.spark.spark_engine import Spark

logger = logging.getLogger(__name__)

MAX_FILES = 30
"""Files in one load batch at most, unless configured."""
MAX_BYTES = 256 * 1024 * 1024
"""Bytes in one load batch at most, unless configured."""

# A file's time is the store's, and the log's is that of whoever commits.
_CLOCKS_APART = dt.timedelta(days=1)


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a load batch; `version` is the one its commit made, None where nothing was new."""

    batch_id: str
    files: tuple[FileOutcome, ...]
    version: int | None

    def count(self, status: Status) -> int:
        """Return how many of the files ended so."""
        return sum(file.status is status for file in self.files)

    @property
    def versions(self) -> list[int]:
        """The versions that it made: one, and one more for each file whose rows took the place of others."""
        return sorted({file.version for file in self.files if file.version is not None})

    @property
    def added(self) -> int:
        """Rows that it added to bronze, less those that it replaced."""
        return sum(file.rows - file.replaced for file in self.files if not file.recovered)

    @property
    def rows(self) -> int:
        """Rows that the batch brought into bronze."""
        return sum(file.rows for file in self.files)


def batches(files: Sequence[LandedFile], max_files: int, max_bytes: int) -> Iterator[list[LandedFile]]:
    """Split files into load batches of bounded count and size, in order; a file over the bound is a batch of its own."""
    batch, size = list[LandedFile](), 0
    for file in files:
        if batch and (len(batch) >= max_files or size + file.size > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def batch_id(source: Source, files: Sequence[LandedFile]) -> str:
    """Return the id of a load batch, the same whenever the same versions of the same files are loaded together."""
    content = "\n".join(f"{file.path}@{file.fingerprint}" for file in sorted(files))
    return f"{source.table.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def waiting(duckdb: DuckDB, landing: LandingZone, source: Source) -> list[LandedFile]:
    """Return the landed files of a source that the ledger does not know in their present version, or as withdrawn."""
    landed = landing.files(source.pattern)
    with duckdb.session() as session:
        known = set(
            session.rows(
                f"SELECT path, fingerprint FROM {LEDGER} WHERE table_name = ? GROUP BY ALL "
                "HAVING arg_max(status, recorded_at) <> 'withdrawn'",
                [source.table_name],
            )
        )
    return [file for file in landed if (file.path, file.fingerprint) not in known]


def load_batch(duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]) -> BatchOutcome:
    """Load a batch of landed files: their rows into bronze in one commit, their fates into the ledger.

    It may be run again after any failure: what was committed is found in the table's log and left out.

    Raises:
        LandingUnavailable: a file cannot be read.
        CommitConflict, CatalogUnavailable, CatalogDenied, UnsafeTable, CommitOutcomeUnknown: see DuckDBSession.append.
    """
    now = dt.datetime.now(dt.UTC)
    load = Load(now, batch_id(source, files))
    with tempfile.TemporaryDirectory(prefix="ratify-") as folder, duckdb.session() as session:
        batch = _Batch(session, landing, source, load, Path(folder))
        outcomes, version = batch.commit(_without_doubles([batch.parse(file) for file in files]))
        record(session, source.table_name, outcomes, now)
    return BatchOutcome(load.batch_id, tuple(outcomes), version)


def ensure_inferred(
    spark: "Spark", duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]
) -> bool:
    """Create the table of a source whose columns nobody declared, where it is missing, with those of the first file that can
    be read; return whether it was created.

    Raises:
        TableMissing: no file can be read from which to tell them.
    """
    try:
        spark.catalog.table(source.table.full_name(spark.catalog.connection.name))
    except TableMissing:
        with tempfile.TemporaryDirectory(prefix="ratify-") as folder, duckdb.session() as session:
            for file in files:
                fetched = landing.fetch(file.path, Path(folder))
                with suppress(BadFile):
                    columns = infer(session.con, source, file.path, fetched.local)
                    return spark.ensure_table(source.inferred_table(columns))
                fetched.local.unlink()
        raise TableMissing(
            f"{source.table_name} is not there yet, and none of {len(files)} landed files tells its columns. Land one that "
            "can be read."
        ) from None
    return False


@dataclass
class _Batch:
    """A batch on its way into bronze. `parsed`: the Parquet files, by the paths of the landed ones."""

    session: DuckDBSession
    landing: LandingZone
    source: Source
    load: Load
    folder: Path
    columns: tuple[Column, ...] = ()
    parsed: dict[str, tuple[Path, ParquetFile]] = field(default_factory=dict[str, tuple[Path, ParquetFile]])

    def __post_init__(self) -> None:
        self.columns = self._columns_now()

    def _columns_now(self) -> tuple[Column, ...]:
        declared = self.source.schema is SchemaMode.DECLARED
        return self.source.table.columns if declared else self.session.columns(self.source.table)

    def parse(self, file: LandedFile) -> FileOutcome:
        """Fetch a landed file and write its rows as Parquet."""
        began = time.monotonic()
        fetched = self.landing.fetch(file.path, self.folder)
        outcome = FileOutcome(
            file.path, file.fingerprint, fetched.sha256, fetched.size, self.load.batch_id, landed_at=file.modified_at
        )
        parquet = fetched.local.with_suffix(".parquet")
        try:
            parsed = self._parsed(file.path, fetched.local, parquet)
        except BadFile as error:
            return replace(outcome, status=Status.QUARANTINED, reason=error.reason, seconds=time.monotonic() - began)
        finally:
            fetched.local.unlink()
        self.parsed[file.path] = parquet, parsed.written
        return replace(outcome, rows=parsed.written.rows, rescued=parsed.rescued, seconds=time.monotonic() - began)

    def _parsed(self, path: str, local: Path, parquet: Path) -> Parsed:
        try:
            return parse(self.session.con, self.source, self.columns, path, local, parquet, self.load)
        except ColumnsToAdd as error:
            self.columns = self.session.add_columns(self.source.table, error.columns)
            return parse(self.session.con, self.source, self.columns, path, local, parquet, self.load)

    def commit(self, outcomes: Sequence[FileOutcome]) -> tuple[list[FileOutcome], int | None]:
        """Append the rows of the files that are new, however many writers load the same files at the same time.

        All are taken to be new until the table's log says otherwise: to ask it first would cost as much as the commit.
        """
        outcomes = self._without_past(outcomes)
        while fresh := [outcome for outcome in outcomes if outcome.fresh]:
            began = time.monotonic()
            try:
                ratified = self.session.commit_staged(self.source.table, self._staged(fresh))
            except AlreadyLoaded as error:
                logger.info("%s", error)
                loads = [load for outcome in fresh for load in (outcome.content_load, outcome.path_load)]
                outcomes = self._settled(outcomes, self.session.loaded(self.source.table, loads))
            except UnsafeTable:
                # Another writer's file has brought a column meanwhile: ours have NULL there.
                if self.source.schema is not SchemaMode.EVOLVING or self.columns == (now := self._columns_now()):
                    raise
                self.columns = now
            else:
                return [_committed(outcome, ratified, time.monotonic() - began) for outcome in outcomes], ratified.version
        return list(outcomes), None

    def _staged(self, fresh: Sequence[FileOutcome]) -> Staged:
        loads = tuple(load for outcome in fresh for load in self._loads(outcome))
        types = {column.name: sql_type(column.type).spark for column in self.columns}
        if len(fresh) == 1:
            parquet, written = self.parsed[fresh[0].path]
        else:
            names = ", ".join(literal(str(self.parsed[outcome.path][0])) for outcome in fresh)
            parquet = self.folder / "batch.parquet"
            written = write_parquet(self.session.con, f"FROM read_parquet([{names}], union_by_name = true)", parquet)
        return Staged(parquet, written.rows, written.size, loads, types, written.stats)

    def _loads(self, outcome: FileOutcome) -> tuple[str, ...]:
        if self.source.on_rewrite is Rewrite.APPEND:
            return (outcome.content_load,)
        return outcome.content_load, outcome.path_load

    def _without_past(self, outcomes: Sequence[FileOutcome]) -> Sequence[FileOutcome]:
        """Settle the fate of files that are so old that the log may have forgotten them."""
        keeps = self.source.table.properties.get(RETENTION)
        if keeps is None:
            return outcomes
        horizon = self.load.loaded_at - dt.timedelta(seconds=retention_seconds(keeps)) + _CLOCKS_APART
        old = [o for o in outcomes if o.fresh and (o.landed_at is None or o.landed_at < horizon)]
        entries = self._loaded_entries(old) if old else []
        return self._settled(outcomes, {load for entry in entries for load in (entry.content_load, entry.path_load)})

    def _settled(self, outcomes: Sequence[FileOutcome], there: set[str]) -> list[FileOutcome]:
        """Settle the fate of files whose bytes or names were loaded before."""
        known = [outcome for outcome in outcomes if outcome.fresh and there.intersection(self._loads(outcome))]
        entries = self._loaded_entries(known) if known else []
        fates = {outcome.path: self._fate(outcome, there, entries) for outcome in known}
        return [fates.get(outcome.path, outcome) for outcome in outcomes]

    def _loaded_entries(self, files: Sequence[FileOutcome]) -> list[LedgerEntry]:
        return loaded_entries(
            self.session, self.source.table_name, [file.path for file in files], [file.sha256 for file in files]
        )

    def _fate(self, outcome: FileOutcome, there: set[str], entries: Sequence[LedgerEntry]) -> FileOutcome:
        of_path = [entry for entry in entries if entry.path == outcome.path]
        if outcome.content_load not in there and self.source.on_rewrite is Rewrite.REPLACE:
            return self._replaced(outcome, of_path)
        if outcome.content_load not in there:
            reason = "this name was loaded before with other content; land a correction under a new name"
            return replace(outcome, status=Status.QUARANTINED, rows=0, rescued=0, reason=reason)
        if not any(entry.sha256 == outcome.sha256 for entry in of_path) and (
            batch := self._brought_by(outcome, there, of_path)
        ):
            return replace(outcome, recovered=True, batch_id=batch)
        return replace(outcome, status=Status.REPEATED, rows=0, rescued=0, reason="its bytes were loaded before")

    def _replaced(self, outcome: FileOutcome, of_path: Sequence[LedgerEntry]) -> FileOutcome:
        """Put a file's rows in the place of those that its earlier content brought."""
        began = time.monotonic()
        staged = replace(self._staged([outcome]), loads=(outcome.content_load,))
        old = [entry for entry in of_path if entry.sha256 != outcome.sha256]
        try:
            made = replace_rows(
                self.session.con,
                self.session.log(self.source.table),
                staged,
                "_source_file",
                outcome.path,
                withdrawn=[entry.content_load for entry in old],
                reloaded=[outcome.path_load],
            )
        except AlreadyLoaded:
            # An earlier attempt did it, and died before the ledger said so.
            made = None
        version = made.version if made else None
        withdraw(self.session, self.source.table_name, old, version, "other content was landed under its name")
        if made is None:
            return replace(outcome, recovered=True)
        seconds = round(outcome.seconds + time.monotonic() - began, 4)
        return replace(outcome, replaced=made.removed, version=version, attempts=made.attempts, seconds=seconds)

    def _brought_by(self, outcome: FileOutcome, there: set[str], of_path: Sequence[LedgerEntry]) -> str | None:
        """The batch of an earlier attempt, which committed the file's rows and died before it entered it in the ledger; None
        where the bytes came by another name."""
        table = f"{ALIAS}.{self.source.table_name}"
        query = f"SELECT count(*), arg_max(_batch_id, _loaded_at) FROM {table} WHERE _source_file = ?"
        rows, batch = self.session.rows(query, [outcome.path])[0]
        if self.source.on_rewrite is Rewrite.APPEND:
            came = 0 < outcome.rows <= rows - sum(entry.rows for entry in of_path)
        else:
            came = outcome.path_load in there
        return (batch or outcome.batch_id) if came else None


def _committed(outcome: FileOutcome, ratified: Ratified, seconds: float) -> FileOutcome:
    if not outcome.fresh:
        return outcome
    return replace(
        outcome, version=ratified.version, attempts=ratified.attempts, seconds=round(outcome.seconds + seconds, 4)
    )


def _without_doubles(outcomes: Sequence[FileOutcome]) -> list[FileOutcome]:
    """Mark the second of two files with the same bytes in one batch."""
    first = dict[str, str]()
    kept = list[FileOutcome]()
    for outcome in outcomes:
        if outcome.status is Status.LOADED and first.setdefault(outcome.sha256, outcome.path) != outcome.path:
            reason = f"the same bytes as {first[outcome.sha256]}"
            kept.append(replace(outcome, status=Status.REPEATED, rows=0, rescued=0, reason=reason))
        else:
            kept.append(outcome)
    return kept
