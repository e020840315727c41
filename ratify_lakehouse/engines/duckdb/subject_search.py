"""Where a table's storage has rows of a subject: in files of its version, of earlier ones, of none, and in its log."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from posixpath import basename
from typing import Any

from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.log_checkpoints import LOG, checkpoint_actions
from ratify_lakehouse.delta.retained_versions import named_in
from ratify_lakehouse.delta.snapshot import Json, Snapshot, committed_ms
from ratify_lakehouse.delta.table_columns import ColumnNames, has_mapping
from ratify_lakehouse.delta.table_storage import StoredFile
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.live_rows import live_rows
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.subject_match import VALUE, Match

_FILES_AT_ONCE = 100
# Delta cuts the least and the greatest text of a file after so many characters.
_CUT = 32
_FILE = "_ratify_file"


class HeldIn(StrEnum):
    """What a file with rows of a subject is."""

    LIVE = "live data file"
    OLD = "file of old versions"
    UNNAMED = "file that no commit names"
    LOG = "log"


@dataclass(frozen=True)
class HoldingFile:
    """A file that has something of a subject.

    Attributes:
        path: Relative to the table's location.
        kind: What it is.
        since: Since when no version needs it, or when it was written; seconds since 1970.
    """

    path: str
    kind: HeldIn
    since: float


def holding_files(
    session: DuckDBSession, log: DeltaLog, snapshot: Snapshot, names: ColumnNames, matches: Sequence[Match], value: str
) -> list[HoldingFile]:
    """Return the files of a table that have something of a subject, sorted by path.

    Args:
        session: Reads them.
        log: The table's.
        snapshot: Its latest version, which the log returned last.
        names: Of its columns.
        matches: How rows of the subject are known.
        value: The subject's.

    Raises:
        StorageUnavailable, LogUnreadable, UnsafeTable.
        duckdb.Error: a data file is damaged.
    """
    stored = log.storage.files()
    matches = [replace(match, column=names.in_files.get(match.column, match.column)) for match in matches]
    live = {file.path for file in log.files(snapshot)}
    ended = _ended(log, snapshot)
    data = [file for file in stored if file.path.endswith(".parquet") and not file.path.startswith(f"{LOG}/")]
    held = _with_rows(session, log, [file.path for file in data], matches, value)
    found = list[HoldingFile]()
    for file in data:
        if file.path in held:
            kind = HeldIn.LIVE if file.path in live else HeldIn.OLD if file.path in ended else HeldIn.UNNAMED
            found.append(HoldingFile(file.path, kind, ended.get(file.path, file.modified)))
    found += [HoldingFile(file.path, HeldIn.LOG, file.modified) for file in _of_log(log, stored, matches, value)]
    return sorted(found, key=lambda file: file.path)


def matching_rows(
    session: DuckDBSession,
    log: DeltaLog,
    snapshot: Snapshot,
    files: Collection[str],
    matches: Sequence[Match],
    value: str,
) -> int:
    """Return how many rows of the snapshot's data files are a subject's; for the arguments see `holding_files`."""
    chosen = [file for file in log.files(snapshot) if file.path in files]
    if not chosen:
        return 0
    if has_mapping(snapshot):
        table = attached(snapshot.full_name.partition(".")[2])
        text = f"SELECT count(*) FROM {table} WHERE {_condition(matches)}"
        return int(session.rows(text.replace(f"${VALUE}", "$1"), [value])[0][0])
    with live_rows(session.con, log.storage, snapshot, chosen) as rows:
        text = f"SELECT count(*) FROM ({rows.select()}) WHERE {_condition(matches)}"
        return int(session.con.execute(text, {VALUE: value}).fetchall()[0][0])


def _condition(matches: Iterable[Match]) -> str:
    return " OR ".join(match.duckdb for match in matches)


def _ended(log: DeltaLog, snapshot: Snapshot) -> dict[str, float]:
    """When each file was removed that is in no version any more, and each change file was written; seconds since 1970."""
    found = dict[str, float]()
    for version in range(snapshot.version, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            break
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        at = next((committed_ms(info) for info in infos), 0) / 1000
        ends = [action for action in actions if "remove" in action or "cdc" in action]
        for path in named_in(snapshot, ends):
            found.setdefault(path, at)
    return found


def _with_rows(
    session: DuckDBSession, log: DeltaLog, paths: Sequence[str], matches: Sequence[Match], value: str
) -> set[str]:
    """The paths of the data files with rows of the subject, deleted ones among them."""
    found = set[str]()
    for at in range(0, len(paths), _FILES_AT_ONCE):
        with ExitStack() as stack:
            some = paths[at : at + _FILES_AT_ONCE]
            local = {str(stack.enter_context(log.storage.downloaded(path))): path for path in some}
            for match in matches:
                found |= {local[file] for file in _files_with(session, [*local], match, value)}
    return found


def _files_with(session: DuckDBSession, local: Sequence[str], match: Match, value: str) -> list[str]:
    names = ", ".join(map(literal, local))
    text = f"SELECT DISTINCT file_name FROM parquet_schema([{names}]) WHERE lower(name) = {literal(match.column.lower())}"
    # Older files may lack the column.
    having = ", ".join(literal(file) for (file,) in session.con.execute(text).fetchall())
    if not having:
        return []
    rows = f"read_parquet([{having}], union_by_name = true, filename = '{_FILE}', hive_partitioning = false)"
    text = f"SELECT DISTINCT {_FILE} FROM {rows} WHERE {match.duckdb}"
    return [file for (file,) in session.con.execute(text, {VALUE: value}).fetchall()]


def _of_log(log: DeltaLog, stored: Iterable[StoredFile], matches: Sequence[Match], value: str) -> Iterable[StoredFile]:
    for file in stored:
        name = basename(file.path)
        if not file.path.startswith(f"{LOG}/") or name.startswith(".") or not name.endswith((".json", ".parquet", ".crc")):
            continue
        try:
            actions = _actions(log, file.path)
        except FileNotFoundError:
            continue
        if any(action_names(action, matches, value) for action in actions):
            yield file


def _actions(log: DeltaLog, path: str) -> list[Json]:
    if not path.endswith(".crc"):
        return checkpoint_actions(log.storage, path, ("add", "remove"))
    # A version checksum (PROTOCOL.md) may list all files of its version.
    checksum: Json = json.loads(log.storage.read(path))
    return [{"add": add} for add in checksum.get("allFiles") or ()]


def action_names(action: Json, matches: Sequence[Match], value: str) -> bool:
    """Return whether an action of a log has a value of a subject: in statistics of a file, or in what a commit says."""
    for kind in ("add", "remove"):
        entry: Json = action.get(kind) or {}
        stats: Mapping[str, Any] = json.loads(entry.get("stats") or "{}")
        for bound in ("minValues", "maxValues"):
            given: Mapping[str, Any] = stats.get(bound) or {}
            if any(_is_bound(given.get(match.column), match, value) for match in matches):
                return True
    info: Json = action.get("commitInfo") or {}
    return any(_quotes(str(info.get(name) or ""), value) for name in ("operationParameters", "userMetadata"))


def _is_bound(bound: object, match: Match, value: str) -> bool:
    text = "" if bound is None else str(bound)
    if match.name or match.anywhere:
        return bool(text) and _quotes(text, value)
    return text == value or (len(text) >= _CUT and value.startswith(text[:_CUT]))


def _quotes(text: str, value: str) -> bool:
    """Whether a text has the value as a word of its own: the subject 7 is not in `version 17`."""
    at = text.find(value)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(value) : at + len(value) + 1]
        if not any(letter.isalnum() for letter in around):
            return True
        at = text.find(value, at + 1)
    return False
