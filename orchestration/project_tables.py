"""What the folders of `assets/` define: the tables in YAML, the assets in Python, and every kind of landed file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import assets
from components.yaml_tables import DeclaredTables
from ingest.file_source import Source

OWN_LOCATIONS = ("cross_engine",)
"""Folders of `assets/` that are code locations of their own."""


def folder() -> Path:
    """Return the folder `assets/`, in which tables are declared."""
    return Path(next(iter(assets.__path__)))


@cache
def declared_tables() -> DeclaredTables:
    """Return what the folders of `assets/` define."""
    return DeclaredTables(assets, without=OWN_LOCATIONS)


def sources() -> Sequence[Source]:
    """Return every kind of landed file, each with the bronze table that takes its rows."""
    return declared_tables().sources
