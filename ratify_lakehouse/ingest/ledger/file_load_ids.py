"""The load ids of a landed file: what the Delta `txn` app ids in a bronze table and in the ledger are called.

How the two states of a load id (loaded, withdrawn) are encoded is the business of `ratify_lakehouse.delta.load_ids`.
"""

from collections.abc import Iterable

_CONTENT, _PATH = "content:", "path:"


def content_load(sha256: str) -> str:
    """Return the id, in a bronze table, of a file's bytes: the same bytes are never loaded twice."""
    return f"{_CONTENT}{sha256}"


def path_load(path: str) -> str:
    """Return the id, in a bronze table, of a file's name: other bytes under this name are a rewrite."""
    return f"{_PATH}{path}"


def contents(loads: Iterable[str]) -> list[str]:
    """Return the SHA-256 of each file whose content is among these load ids."""
    return [load.removeprefix(_CONTENT) for load in loads if load.startswith(_CONTENT)]


def version_load(table_id: str, version: int) -> str:
    """Return the id, in the ledger, of the entries that come from one version of a bronze table."""
    return f"version:{table_id}@{version}"


def entry_load(table_id: str, path: str, number: int) -> str:
    """Return the id, in the ledger, of an entry that comes from no version: the `number`th of its path in this table."""
    return f"entry:{table_id}:{path}#{number}"
