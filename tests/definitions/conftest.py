"""A catalog with the tables that files are loaded into."""

from tests.cli.conftest import target

__all__ = ["target"]
