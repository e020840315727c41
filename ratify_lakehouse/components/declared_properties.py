"""The properties of a table: which of them its kind, or another of its attributes, does not allow."""

from collections.abc import Mapping

from ratify_lakehouse.declarations import APPEND_ONLY, CHANGE_DATA_FEED, is_append_only, records_changes
from ratify_lakehouse.errors import UnsafeDeclaration


def check_properties(given: Mapping[str, str], *, feed: bool, rewrites: str, replaces_files: bool) -> None:
    """Check that a table can be written with properties.

    Args:
        given: The attribute `table_properties`.
        feed: The attribute `change_data_feed`.
        rewrites: What updates or deletes rows of the table, as the beginning of a sentence; empty if nothing does.
        replaces_files: Whether DuckDB replaces all of the table's files.

    Raises:
        UnsafeDeclaration: it cannot.
    """
    if rewrites and is_append_only(given):
        raise UnsafeDeclaration(
            f"{rewrites}, and Delta permits neither in a table with {APPEND_ONLY}: remove it.", "table_properties"
        )
    if feed and CHANGE_DATA_FEED in given and not records_changes(given):
        raise UnsafeDeclaration(
            f"{CHANGE_DATA_FEED} says {given[CHANGE_DATA_FEED]}, and `change_data_feed` says true: remove one of them.",
            "table_properties",
        )
    if replaces_files and (feed or records_changes(given)):
        raise UnsafeDeclaration(
            "DuckDB replaces the table's files, so readers of its change data feed would see all rows deleted and "
            "inserted: use the engine spark.",
            *(["change_data_feed"] if feed else ["table_properties"]),
        )
