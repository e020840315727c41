"""The tables that are declared in YAML under `assets/`, and every kind of landed file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import assets
from assets.bronze.landed_sources import SOURCES as SAMPLE_SOURCES
from components.yaml_tables import DeclaredTables
from ingest.file_source import Source


def folder() -> Path:
    """Return the folder `assets/`, in which tables are declared."""
    return Path(next(iter(assets.__path__)))


@cache
def declared_tables() -> DeclaredTables:
    """Return the tables that are declared under `assets/`."""
    return DeclaredTables(assets)


def sources() -> Sequence[Source]:
    """Return every kind of landed file, each with the bronze table that takes its rows."""
    return [*SAMPLE_SOURCES, *declared_tables().sources]
