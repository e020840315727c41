"""The load ids of a landed file: what the Delta `txn` app ids in a bronze table and in the ledger are called.

How the two states of a load id (loaded, withdrawn) are encoded is the business of `resources.delta.load_ids`.
"""

from collections.abc import Iterable

_CONTENT, _PATH, _ENTRY, _WITHDRAWAL = "content:", "path:", "ledger:", "withdrawn:"


def content_load(sha256: str) -> str:
    """Return the id, in a bronze table, of a file's bytes: the same bytes are never loaded twice."""
    return f"{_CONTENT}{sha256}"


def path_load(path: str) -> str:
    """Return the id, in a bronze table, of a file's name: other bytes under this name are a rewrite."""
    return f"{_PATH}{path}"


def entry_load(path: str, fingerprint: str) -> str:
    """Return the id, in the ledger, of the entry for one version of a file."""
    return f"{_ENTRY}{path}@{fingerprint}"


def withdrawal_load(table_name: str, version: int | None, path: str, fingerprint: str) -> str:
    """Return the id, in the ledger, of the entry that a version of a bronze table removed a file's rows."""
    return f"{_WITHDRAWAL}{table_name}@{version}:{path}@{fingerprint}"


def loaded_contents(loads: Iterable[str]) -> list[str]:
    """Return the SHA-256 of each file whose content is among these load ids."""
    return [load.removeprefix(_CONTENT) for load in loads if load.startswith(_CONTENT)]
