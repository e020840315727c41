"""Checks of landed files: no row is lost and none is doubled between the landing zone and bronze.

Each compares what is new since it last passed (see `check_state`): the rows of the data files that bronze got since, with
the entries that the ledger got since. So its cost does not grow with all files that ever landed. Where rows were removed, or
nothing is recorded, it compares all. Rows that an acknowledged commit removed count as there.
"""

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from ratify_lakehouse.components.checks.acknowledged_commits import removed_rows
from ratify_lakehouse.components.checks.check_state import Position
from ratify_lakehouse.components.checks.history_findings import Finding, together
from ratify_lakehouse.components.checks.table_changes import appended_since, position
from ratify_lakehouse.engines.duckdb.data_file_rows import rows_of_files
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.formats.parse_file import Load, parse
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.ledger.ledger_queries import (
    appended_entries,
    loaded_before,
    refused_entries,
    still_loaded,
    table_entries,
    waiting,
)
from ratify_lakehouse.ingest.load.erased_subjects import ErasedRows, erased_rows
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.wording import counted

WAIT_LIMIT = timedelta(hours=1)
"""A file that waits longer for the sensor fails the check."""

Checked = Mapping[str, Position]

_SHOWN = 5
_READINGS = 4
_PAUSE_S = 1.0


@dataclass(frozen=True)
class _Reading:
    """Bronze and the ledger, read one after the other.

    Attributes:
        rows: Rows by file: of all of bronze, or of the data files that it got since the last passed check.
        records: Entries: all, or those since.
        partial: Whether they are only those since.
        checked: The versions that were read; none where other commits came between.
    """

    rows: Mapping[str, int]
    records: Sequence[LedgerEntry]
    partial: bool
    checked: Checked

    @property
    def expected(self) -> Counter[str]:
        """Rows by file, according to the ledger."""
        expected = Counter[str]()
        for entry in self.loaded:
            expected[entry.path] += entry.rows
        return expected

    @property
    def loaded(self) -> list[LedgerEntry]:
        """The entries LOADED that were not withdrawn: one for each content, unless a content is doubled."""
        return still_loaded(self.records)

    def faults(self) -> dict[str, set[str]]:
        """Files whose rows in bronze are not those that the ledger has, by the kind of fault."""
        expected, contents = self.expected, Counter(entry.sha256 for entry in self.loaded)
        return {
            "doubled": {entry.path for entry in self.loaded if contents[entry.sha256] > 1}
            | {path for path, rows in expected.items() if self.rows.get(path, 0) > rows},
            "lost": {path for path, rows in expected.items() if self.rows.get(path, 0) < rows},
            "not in the ledger": set(self.rows) - set(expected),
        }


def files_loaded_once(landing: LandingZone, duckdb: DuckDB, source: Source, since: Checked | None = None) -> Finding:
    """Check that bronze has each row of each landed file, once, or the ledger the reason why not.

    Rows are counted by file and compared with the ledger, and with the files, each of which is read again, whatever its
    format. A load commits its rows first and its ledger entry then, so that one reading may be in between: a fault is what
    several readings in a row have found.
    """
    with duckdb.session() as session:
        reading = _read(session, source, since or {})
        faults = reading.faults()
        for _ in range(_READINGS - 1):
            if not any(faults.values()):
                break
            time.sleep(_PAUSE_S)
            reading = _read(session, source, since or {})
            again = reading.faults()
            faults = {kind: paths & again[kind] for kind, paths in faults.items()}
        if reading.partial:
            faults["doubled"] |= loaded_before(session, source, reading.loaded)
        unsettled = {path for paths in reading.faults().values() for path in paths}.difference(*faults.values())
        in_files = _as_in_files(landing, session, source, reading, unsettled)
    files_waiting = waiting(duckdb, landing, source)
    faults["waiting too long"] = {file.path for file in files_waiting if _overdue(file)}
    loaded = reading.loaded
    numbers = {
        "loaded": len(loaded),
        **{
            status.value: sum(entry.status is status for entry in reading.records)
            for status in (Status.REPEATED, Status.REFUSED)
        },
        "compared": "new since the last passed check" if reading.partial else "all",
        "waiting": len(files_waiting),
        **{kind: len(paths) for kind, paths in faults.items()},
    }
    wrong = "; ".join(f"{kind}: {', '.join(sorted(paths)[:_SHOWN])}" for kind, paths in faults.items() if paths)
    text = wrong[:1].upper() + wrong[1:] if wrong else f"{_files(reading, len(loaded))} in bronze, each once"
    # What only a later reading had right is compared again by the next check.
    checked = {} if any(reading.faults().values()) else reading.checked
    return replace(together(Finding(not wrong, f"{text}.", numbers), in_files), checked=checked)


def _as_in_files(
    landing: LandingZone, session: DuckDBSession, source: Source, reading: _Reading, unsettled: Collection[str]
) -> Finding:
    """Check that bronze has exactly the rows of the loaded files, by reading each file again but those that are unsettled.

    Files that have changed or are missing since cannot be compared; they are counted. If there are no others, it does not
    pass: nothing was compared.
    """
    loaded, expected = reading.loaded, reading.expected
    erased = erased_rows(session, source.table)
    ledger = FileLedger(session, session.log(source.table), source.table_name)
    read, in_bronze = dict[str, int](), dict[str, int]()
    contents = defaultdict[str, dict[str, LedgerEntry]](dict)
    for entry in loaded:
        contents[entry.path][entry.sha256] = entry
    with tempfile.TemporaryDirectory(prefix="ratify-") as folder:
        for path, place in _where(landing, (path for path in expected if path not in unsettled)).items():
            again = _read_again(session, landing, source, place, contents[path], Path(folder), erased, ledger)
            if again is not None:
                entry, read[path] = again
                # Other contents of a name whose new content is appended cannot be read again.
                in_bronze[path] = reading.rows.get(path, 0) - (expected[path] - entry.rows)
    in_files, bronze_rows = sum(read.values()), sum(in_bronze.values())
    wrong = sorted(path for path, rows in read.items() if in_bronze[path] != rows)
    numbers = {
        "rows in files": in_files,
        "rows in bronze": bronze_rows,
        "files read": len(read),
        "files missing or changed since": len(loaded) - len(read),
    }
    if wrong:
        return Finding(False, f"Row counts differ for {', '.join(wrong[:_SHOWN])} ({counted(len(wrong), 'file')}).", numbers)
    if not read and (loaded or reading.rows):
        return _nothing_read(len(loaded), sum(reading.rows.values()), numbers)
    return Finding(True, f"{counted(in_files, 'row')} in {_files(reading, len(read))}, {bronze_rows:,} in bronze.", numbers)


def files_accepted(landing: LandingZone, duckdb: DuckDB, source: Source, _: Checked | None = None) -> Finding:
    """Check that no refused file waits for its correction: it is in the landing zone, or among the dead letters, and the
    ledger's last entry for it is the refusal.

    A correction under the same name settles it, and so does the removal of the file, for one that landed by mistake or was
    corrected under another name.
    """
    with duckdb.session() as session:
        refused = {entry.path: entry for entry in refused_entries(session, source)}
    folder = Settings().discovery.dead_letter
    present = {file.path: file.fingerprint for file in landing.look(refused)}
    letters = {file.path for file in landing.look(f"{folder}/{path}" for path in refused if path not in present)}
    open_ = [
        record
        for path, record in sorted(refused.items())
        if present.get(path) == record.fingerprint or (folder and f"{folder}/{path}" in letters)
    ]
    numbers = {"refused": len(open_), "refused and settled": len(refused) - len(open_)}
    if not open_:
        return Finding(True, "No refused file waits for its correction.", numbers)
    places = {path: f" (moved to {folder}/{path})" for path in refused if f"{folder}/{path}" in letters}
    shown = "; ".join(f"{record.path}: {record.reason}{places.get(record.path, '')}" for record in open_[:_SHOWN])
    more = f" and {len(open_) - _SHOWN} more" if len(open_) > _SHOWN else ""
    advice = "Land them corrected under their names, take them as they are (`ratify accept FILE`), or remove them."
    return Finding(False, f"Refused: {shown}{more}. {advice}", numbers, warns=True)


def _read(session: DuckDBSession, source: Source, since: Checked) -> _Reading:
    bronze, ledger = session.log(source.table), session.log(LANDED_FILES)
    before = {source.table_name: position(bronze), _LEDGER: position(ledger)}
    new_rows = appended_since(bronze, since.get(source.table_name), before[source.table_name])
    new_entries = appended_since(ledger, since.get(_LEDGER), before[_LEDGER])
    if new_rows is not None and new_entries is not None:
        read = partial(rows_of_files, session, ledger, new_entries)
        records = appended_entries(read, before[source.table_name].table)
        if all(record.status is not Status.WITHDRAWN for record in records):
            rows = rows_of_files(session, bronze, new_rows, _BY_FILE)
            return _Reading(dict(rows), records, True, before)
    session.attach()
    all_rows = dict(session.rows(_BY_FILE.format(rows=attached(source.table_name))))
    for path, removed in removed_rows(session, before[source.table_name].table).items():
        # As if the rows were there: somebody has said why they are not.
        all_rows[path] = all_rows.get(path, 0) + removed
    all_rows = {path: rows for path, rows in all_rows.items() if rows}
    records = table_entries(session, source).entries
    after = {source.table_name: position(bronze), _LEDGER: position(ledger)}
    return _Reading(all_rows, records, False, before if before == after else {})


_LEDGER = LANDED_FILES.table_name
_BY_FILE = "SELECT _source_file, count(*) FROM {rows} GROUP BY ALL"


def _where(landing: LandingZone, paths: Iterable[str]) -> dict[str, str]:
    """The present places of landed files, by their paths: where they landed, or in the archive."""
    options = Settings().discovery
    places = {path: path for path in paths}
    found = {file.path: file.path for file in landing.look(places)}
    if options.after_success == "archive":
        archived = {f"{options.archive}/{path}": path for path in places if path not in found}
        found |= {archived[file.path]: file.path for file in landing.look(archived)}
    return found


def _nothing_read(loaded: int, rows: int, numbers: Mapping[str, int]) -> Finding:
    if Settings().discovery.after_success == "delete" and loaded:
        text = f"DISCOVERY_AFTER_SUCCESS deletes loaded files: the rows of {loaded} can only be compared with the ledger."
        return Finding(True, text, numbers)
    text = f"Nothing was compared: none of {loaded} loaded files is where it landed with the same bytes, and bronze has "
    return Finding(False, f"{text}{rows:,} rows of them or of others. Restore the files.", numbers)


def _files(reading: _Reading, number: int) -> str:
    return counted(number, "new file" if reading.partial else "file")


def _read_again(
    session: DuckDBSession,
    landing: LandingZone,
    source: Source,
    place: str,
    contents: Mapping[str, LedgerEntry],
    folder: Path,
    erased: ErasedRows | None,
    ledger: FileLedger,
) -> tuple[LedgerEntry, int] | None:
    """The entry of a file's present content, among those by SHA-256, and the rows that it has; None if it has no entry."""
    fetched = landing.fetch(place, folder)
    try:
        (landed,) = ledger.landed_contents([(place, fetched.sha256)], latest=False)
        present = (source.content_of(each.path, landed.sha256, each.fingerprint) for each in contents.values())
        if (record := next((contents[content] for content in present if content in contents), None)) is None:
            return None
        load = Load(datetime.now(UTC), "check")
        parquet = fetched.local.with_suffix(".parquet")
        columns = session.columns(source.table)
        rows = parse(session.con, source, columns, record.path, fetched.local, parquet, load).written.rows
        dropped = erased.count(session.con, parquet) if erased else 0
        return record, _compared(record.rows, rows, dropped, landed.removed)
    except BadFile:
        return None
    finally:
        fetched.local.unlink()


def _compared(loaded: int, rows: int, dropped: int, removed: int) -> int:
    """The rows that a file has, as its load counted them.

    Rows that were erased after their load are counted as removed from the table; those that landed again were never loaded.
    Of the rows that a rewrite has removed from the file it is not known which they were.
    """
    if removed:
        return min(max(loaded, rows - dropped), rows + removed)
    return rows - dropped if loaded == rows - dropped else rows


def _overdue(file: LandedFile) -> bool:
    return file.modified_at is not None and datetime.now(UTC) - file.modified_at > WAIT_LIMIT
