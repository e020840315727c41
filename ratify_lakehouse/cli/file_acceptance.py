"""Refused files that are loaded after all, by a run of their table."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.table_run import run_tables
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.durable_files import write_durably
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import RatifyError, TerminalError
from ratify_lakehouse.ingest.file_source import RESCUED, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.ledger_queries import latest_entries
from ratify_lakehouse.landing.file_moves import Moved, bring_back
from ratify_lakehouse.landing.landing_zone import LandingZone, matcher
from ratify_lakehouse.settings import Settings


class NotAccepted(TerminalError):
    """A file cannot be loaded by `ratify accept`."""


@dataclass(frozen=True)
class AcceptedFile:
    """Result of accepting a file.

    Attributes:
        row: Its table, path, status, rows and version.
        faults: What failed.
        declared: The declaration in which `rescue: true` was written; empty if none was changed.
    """

    row: dict[str, Any]
    faults: list[str]
    declared: str


def accept_file(file: str, *, rescue: bool = False) -> AcceptedFile:
    """Move a refused file back to where it landed, and load it by a run of its table.

    Args:
        file: Its path in the landing zone, also as it is among the dead letters.
        rescue: `rescue: true` is declared first, where it is not.

    Raises:
        NotAccepted: there is no such file, it was not refused or is loaded, or the declaration cannot be changed.
    """
    landing, folder = LandingZone(), Settings().discovery.dead_letter
    path = _landing_path(landing, file, folder)
    source, entry = _refused(landing, path)
    moved = bring_back(landing, path, entry.fingerprint, folder)
    if moved is Moved.CHANGED:
        raise NotAccepted(
            f"Another version of {path} has landed since: `ratify run {source.table_name}` loads it. Remove the refused one "
            f"from {folder}/."
        )
    if moved is Moved.MISSING:
        raise NotAccepted(f"{path} was refused, and is no longer in the landing zone {landing.root}: land it again.")
    declared = _declare_rescue(source) if rescue and RESCUED.name not in source.table.column_names else ""
    run = run_tables([source.table_name], files=[path])
    now = _entries([source], path)[source.table_name]
    row = {"table": source.table_name, "file": path, "status": now.status.value, "rows": now.rows, "version": now.version}
    faults = run.faults
    if not faults and now.status is Status.REFUSED:
        faults = [f"{path} is refused again{f' and back in {folder}/' if folder else ''}: {now.reason}"]
    return AcceptedFile(row, faults, declared)


def _landing_path(landing: LandingZone, file: str, folder: str) -> str:
    """The path of a file in the landing zone, however it was written."""
    local = str(Path(file).absolute())
    inside = next(
        (each.removeprefix(f"{landing.root}/") for each in (file, local) if each.startswith(f"{landing.root}/")), file
    )
    return inside.removeprefix(f"{folder}/") if folder else inside


def _entries(sources: Sequence[Source], path: str) -> dict[str, LedgerEntry]:
    """The latest entry of a path for each table that has one."""
    with closing(DuckDB(catalog=UnityCatalog())) as duckdb, duckdb.session() as session:
        found = {source.table_name: latest_entries(session, source, [path]).get(path) for source in sources}
    return {table: entry for table, entry in found.items() if entry}


def _refused(landing: LandingZone, path: str) -> tuple[Source, LedgerEntry]:
    """The source and the entry of a refused file."""
    sources = [source for source in project_tables.sources() if matcher(source.pattern)(path)]
    entries = _entries(sources, path)
    refused = [source for source in sources if (entry := entries.get(source.table_name)) and entry.status is Status.REFUSED]
    if refused:
        return refused[0], entries[refused[0].table_name]
    if entry := next(iter(entries.values()), None):
        if entry.status in {Status.LOADED, Status.REPEATED}:
            raise NotAccepted(f"{path} is loaded already: {next(iter(entries))} has its rows since version {entry.version}.")
        raise NotAccepted(f"{path} was not refused; the ledger has it as {entry.status.value}.")
    if not landing.look([path]):
        raise NotAccepted(
            f"There is no file {path} in the landing zone {landing.root}, and none was refused. This lists those that were: "
            "ratify sql \"SELECT path, reason FROM ops.landed_files WHERE status = 'refused'\""
        )
    if not sources:
        raise NotAccepted(f"{path} belongs to no table: no declared `pattern` matches it.")
    raise NotAccepted(f"{path} was never refused: `ratify run {sources[0].table_name}` loads it, if it is not loaded yet.")


def _declare_rescue(source: Source) -> str:
    """Write `rescue: true` into the declaration of a table, and return the file."""
    component = project_tables.declared_tables().components[source.table_name]
    file = component.folder / "defs.yaml"
    before = file.read_text(encoding="utf-8")
    text, changed = re.subn(r"^([ \t]+)rescue:.*$", r"\1rescue: true", before, flags=re.MULTILINE)
    if not changed:
        text, changed = re.subn(r"^(attributes:[ \t]*\n)([ \t]+)", r"\1\2rescue: true\n\2", before, flags=re.MULTILINE)
    if changed != 1:
        raise NotAccepted(f"Write `rescue: true` into the attributes of {source.table_name} in {file}, then accept it.")
    _write(file, text)
    try:
        project_tables.sources()
    except RatifyError:
        _write(file, before)
        raise
    return str(file)


def _write(file: Path, text: str) -> None:
    write_durably(file, text.encode(), 0o644)
    project_tables.declared_tables.cache_clear()
