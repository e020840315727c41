"""Loads batches of landed files into bronze, each file exactly once, one commit for the whole batch.

A file is identified by its bytes. The commit that adds its rows writes two Delta `txn` app ids for it: one for its content
and one for its path. So the same bytes are never loaded twice, under whatever name or by however many writers at once, and
other bytes under a name that was loaded before meet the source's policy for rewritten files (`known_files`).

App ids expire, so that a commit costs the same after a million files. For a file older than that, the ledger of landed files
is asked.
"""

import datetime as dt
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.file_source import SchemaMode, Source
from ingest.formats.isolated_parsing import infer, parse
from ingest.formats.parse_file import ColumnsToAdd, Load, Parsed
from ingest.ledger.file_ledger import FileOutcome, Status
from ingest.ledger.ledger_writes import record
from ingest.load.file_batches import batch_id
from ingest.load.known_files import KnownFiles, load_ids
from resources.column_types import sql_type
from resources.declarations import Column
from resources.delta.snapshot import RETENTION, retention_seconds
from resources.duckdb.duckdb_engine import DuckDB, DuckDBSession
from resources.duckdb.group_commit import Ratified, Staged
from resources.duckdb.parquet_files import ParquetFile, write_parquet
from resources.errors import AlreadyLoaded, BadFile, TableMissing, UnsafeTable
from resources.landing.landing_zone import LandedFile, LandingZone
from resources.scratch_folders import scratch_folder
from resources.sql.duckdb_sql import literal

if TYPE_CHECKING:
    from resources.spark.spark_engine import Spark

logger = logging.getLogger(__name__)

# A file's time is by the store's clock, and the log's by the committer's: allow for a difference.
_CLOCK_SKEW = dt.timedelta(days=1)


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a load batch; `version` is that of its commit, None where nothing was new."""

    batch_id: str
    files: tuple[FileOutcome, ...]
    version: int | None

    def count(self, status: Status) -> int:
        """Return how many of the files ended with this status."""
        return sum(file.status is status for file in self.files)

    @property
    def versions(self) -> list[int]:
        """The versions that it committed: one, and one more for each file whose rows replaced others."""
        return sorted({file.version for file in self.files if file.version is not None})

    @property
    def added(self) -> int:
        """Rows that it added to bronze, less those that it replaced."""
        return sum(file.rows - file.replaced for file in self.files if not file.recovered)

    @property
    def rows(self) -> int:
        """Rows of the batch's files in bronze, also those that an earlier attempt committed."""
        return sum(file.rows for file in self.files)


def load_batch(duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]) -> BatchOutcome:
    """Load a batch of landed files: their rows into bronze in one commit, their outcomes into the ledger.

    It may be run again after any failure: what was committed is found in the table's log and left out.

    Raises:
        LandingUnavailable: a file cannot be read.
        CommitConflict, CatalogUnavailable, CatalogDenied, UnsafeTable, CommitOutcomeUnknown: see DuckDBSession.append.
    """
    now = dt.datetime.now(dt.UTC)
    load = Load(now, batch_id(source, files))
    with scratch_folder() as folder, duckdb.session() as session:
        batch = _Batch(session, landing, source, load, folder)
        outcomes, version = batch.commit(_without_repeats([batch.parse(file) for file in files]))
        record(session, source.table_name, outcomes, now)
    return BatchOutcome(load.batch_id, tuple(outcomes), version)


def ensure_inferred(
    spark: "Spark", duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]
) -> bool:
    """Create the table of a source without declared columns, if it is missing, with the columns of the first readable file.

    Returns:
        Whether it was created.

    Raises:
        TableMissing: no file can be read.
    """
    try:
        spark.catalog.table(source.table.full_name(spark.catalog.connection.name))
    except TableMissing:
        with scratch_folder() as folder, duckdb.session() as session:
            for file in files:
                fetched = landing.fetch(file.path, folder)
                with suppress(BadFile):
                    columns = infer(session.con, source, file.path, fetched.local)
                    return spark.ensure_table(source.inferred_table(columns))
                fetched.local.unlink()
        raise TableMissing(
            f"{source.table_name} does not exist yet, and its columns cannot be inferred: none of {len(files)} landed files "
            "can be read. Land one that can."
        ) from None
    return False


@dataclass
class _Batch:
    """A batch while it is loaded. `parsed`: the Parquet files, by the paths of the landed ones."""

    session: DuckDBSession
    landing: LandingZone
    source: Source
    load: Load
    folder: Path
    columns: tuple[Column, ...] = ()
    parsed: dict[str, tuple[Path, ParquetFile]] = field(default_factory=dict[str, tuple[Path, ParquetFile]])

    def __post_init__(self) -> None:
        self.columns = self._present_columns()
        self.known = KnownFiles(self.session, self.source, lambda outcome: self._staged([outcome]))

    def _present_columns(self) -> tuple[Column, ...]:
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

        All count as new until the table's log refuses them: to read the log first would cost as much as the commit.
        """
        outcomes = self._settle_expired(outcomes)
        while fresh := [outcome for outcome in outcomes if outcome.fresh]:
            began = time.monotonic()
            try:
                ratified = self.session.commit_staged(self.source.table, self._staged(fresh))
            except AlreadyLoaded as error:
                logger.info("%s", error)
                loads = [load for outcome in fresh for load in (outcome.content_load, outcome.path_load)]
                outcomes = self.known.settle(outcomes, self.session.loaded(self.source.table, loads))
            except UnsafeTable:
                # Another writer's file has added a column meanwhile: our files have NULL in it.
                if self.source.schema is not SchemaMode.EVOLVING or self.columns == (now := self._present_columns()):
                    raise
                self.columns = now
            else:
                return [_committed(outcome, ratified, time.monotonic() - began) for outcome in outcomes], ratified.version
        return list(outcomes), None

    def _staged(self, fresh: Sequence[FileOutcome]) -> Staged:
        loads = tuple(load for outcome in fresh for load in load_ids(self.source, outcome))
        types = {column.name: sql_type(column.type).spark for column in self.columns}
        if len(fresh) == 1:
            parquet, written = self.parsed[fresh[0].path]
        else:
            names = ", ".join(literal(str(self.parsed[outcome.path][0])) for outcome in fresh)
            parquet = self.folder / "batch.parquet"
            written = write_parquet(self.session.con, f"FROM read_parquet([{names}], union_by_name = true)", parquet)
        return Staged(parquet, written.rows, written.size, loads, types, written.stats)

    def _settle_expired(self, outcomes: Sequence[FileOutcome]) -> Sequence[FileOutcome]:
        """Settle, by the ledger, files that are so old that their app ids may have expired from the log."""
        retained = self.source.table.properties.get(RETENTION)
        if retained is None:
            return outcomes
        horizon = self.load.loaded_at - dt.timedelta(seconds=retention_seconds(retained)) + _CLOCK_SKEW
        old = [o for o in outcomes if o.fresh and (o.landed_at is None or o.landed_at < horizon)]
        loaded = {load for entry in self.known.entries(old) for load in (entry.content_load, entry.path_load)}
        return self.known.settle(outcomes, loaded)


def _committed(outcome: FileOutcome, ratified: Ratified, seconds: float) -> FileOutcome:
    if not outcome.fresh:
        return outcome
    return replace(
        outcome, version=ratified.version, attempts=ratified.attempts, seconds=round(outcome.seconds + seconds, 4)
    )


def _without_repeats(outcomes: Sequence[FileOutcome]) -> list[FileOutcome]:
    """Mark the second of two files with the same bytes in one batch as repeated."""
    first = dict[str, str]()
    marked = list[FileOutcome]()
    for outcome in outcomes:
        if outcome.status is Status.LOADED and first.setdefault(outcome.sha256, outcome.path) != outcome.path:
            reason = f"the same bytes as {first[outcome.sha256]}"
            marked.append(replace(outcome, status=Status.REPEATED, rows=0, rescued=0, reason=reason))
        else:
            marked.append(outcome)
    return marked
