"""Tables whose rows may not be removed (`delta.appendOnly`): refused before anything is done that removes some."""

from collections.abc import Mapping

from ratify_lakehouse.declarations import APPEND_ONLY, is_append_only
from ratify_lakehouse.errors import UnsafeTable


def refuse_append_only(full_name: str, properties: Mapping[str, str]) -> None:
    """Refuse to replace or remove rows of a table that has these properties and only allows appends.

    Raises:
        UnsafeTable: it does.
    """
    if is_append_only(properties):
        raise UnsafeTable(
            f"{full_name} only allows appends: run ALTER TABLE {full_name} SET TBLPROPERTIES "
            f"('{APPEND_ONLY}' = 'false') in Spark to replace or remove rows, and set it back afterwards."
        )
