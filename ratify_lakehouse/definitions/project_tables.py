"""What the folders of the project define: the tables in YAML, the assets in Python, and every kind of landed file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ratify_lakehouse.components.flink.flink_table import FlinkTable
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.record_table import RecordTable
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.definitions.project_folders import declaring_package
from ratify_lakehouse.engines.flink.flink_engine import is_available
from ratify_lakehouse.errors import NotConfigured
from ratify_lakehouse.ingest.file_source import Source


def folder() -> Path:
    """Return the folder of the package in which tables are declared."""
    return Path(next(iter(declaring_package().__path__)))


@cache
def declared_tables() -> DeclaredTables:
    """Return what its folders define."""
    return DeclaredTables(declaring_package())


def sources() -> Sequence[Source]:
    """Return every kind of landed file, each with the bronze table that takes its rows."""
    return declared_tables().sources


def record_tables(name: str = "") -> Sequence[RecordTable]:
    """Return the tables of records: the one that is named as schema.table, or all.

    Raises:
        NotConfigured: there is none, or none of that name.
    """
    found = {table.declaration.table_name: table for table in declared_tables().record_tables}
    if not found:
        raise NotConfigured(
            "No table of the project is of the kind KafkaEvents: docs/own-tables.md says how to declare one."
        )
    if name and name not in found:
        raise NotConfigured(f"There is no KafkaEvents called {name}. Choose one of: {', '.join(found)}.")
    return [found[name]] if name else list(found.values())


def continuous_tables(name: str = "") -> Sequence[RecordTable | FlinkTable]:
    """Return the tables that the continuous mode can keep up to date: the one that is named, or all that can run here.

    Raises:
        NotConfigured: there is none, or none of that name.
    """
    jobs = {table.name: table for table in declared_tables().flink_tables}
    if name in jobs:
        return [jobs[name]]
    if name or not jobs:
        return record_tables(name)
    here = list(jobs.values()) if is_available() else []
    return [*declared_tables().record_tables, *here]


def event_stream(name: str = "") -> EventStream:
    """Return the stream into a table, named as schema.table; without a name the only one that there is.

    Raises:
        NotConfigured: there is none of that name, or there are several and none is named.
    """
    found = {stream.name: stream for stream in declared_tables().streams}
    if not found:
        raise NotConfigured(
            "No table of the project is of the kind StreamTable: docs/own-tables.md says how to declare one."
        )
    if name and name not in found:
        raise NotConfigured(f"There is no StreamTable called {name}. Choose one of: {', '.join(found)}.")
    if not name and len(found) > 1:
        raise NotConfigured(f"There are several tables of the kind StreamTable: name one of {', '.join(found)}.")
    return found[name or next(iter(found))]


def streams_from(table: RecordTable) -> Sequence[EventStream]:
    """Return the streams that read a table of records."""
    return [stream for stream in declared_tables().streams if stream.records.table_name == table.declaration.table_name]
