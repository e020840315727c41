"""What the folders of the project define: the tables in YAML, the assets in Python, and every kind of landed file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from components.yaml_tables import DeclaredTables
from ingest.file_source import Source
from orchestration.project_folders import declaring_package

APART = ("cross_engine",)
"""Folders of the package that are code locations of their own."""


def folder() -> Path:
    """Return the folder of the package in which tables are declared."""
    return Path(next(iter(declaring_package().__path__)))


@cache
def declared_tables() -> DeclaredTables:
    """Return what its folders define."""
    return DeclaredTables(declaring_package(), without=APART)


def sources() -> Sequence[Source]:
    """Return every kind of landed file, each with the bronze table that takes its rows."""
    return declared_tables().sources
