"""Numbers and rows in messages."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def counted(number: int, what: str) -> str:
    """Return a number with what it counts, such as `1 row` or `1,200 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def keys_shown(rows: Iterable[Mapping[str, Any]], keys: Sequence[str], hidden: Collection[str]) -> str:
    """Return the keys of rows as a message shows them, without the values of hidden columns: `id=1, who=…; id=2, who=…`."""
    return "; ".join(", ".join(f"{key}={'…' if key in hidden else repr(row[key])}" for key in keys) for row in rows)
