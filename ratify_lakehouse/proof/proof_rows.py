"""The rows that the engines add to `orders`, in blocks of keys that TPC-H never reaches."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

from ratify_lakehouse.proof.row_digest import Block

LOADED = Block(0, 8_999_999_999)
"""What setup loads."""

BY_VALUES = Block(9_000_000_301, 9_000_000_303)
BY_QUERY = Block(9_000_000_401, 9_000_000_408)
BY_QUERY_DELETED = Block(9_000_000_409, 9_000_000_410)
"""DuckDB's; Spark changes the first block, does not touch the second, and deletes the third."""

SAVED = Block(9_000_000_501, 9_000_000_503)
WRITTEN = Block(9_000_000_511, 9_000_000_513)
MERGED = Block(9_000_000_521, 9_000_000_522)
SAVED_DELETED = Block(9_000_000_531, 9_000_000_532)
"""Spark's: it changes the first by UPDATE and the second by MERGE, which adds the third, and deletes the fourth."""

STREAMED = Block(9_100_000_000, 9_199_999_999)
"""Structured Streaming's, in a table of its own."""

BY_FLINK = Block(9_200_000_001, 9_200_003_000)
BY_FLINK_SHARED = Block(9_300_000_001, 9_300_000_010)
"""Flink's: in a table of its own, and in the one that all share."""

_TEXTS = ("plain", "Grüße aus 東京 🚀", "", None)
_PRICES = (Decimal("100.00"), Decimal("-0.01"), Decimal("9999999999999.99"))
_DAYS = (dt.date(2026, 4, 23), dt.date(1970, 1, 1), dt.date(9999, 12, 31))


def values(block: Block, clerk: str, status: str = "O") -> str:
    """Return a query, which both engines understand alike, that gives the rows of a block, with values easily lost."""
    return f"SELECT * FROM (VALUES {', '.join(_row(key, clerk, status) for key in block.keys)})"


def _row(key: int, clerk: str, status: str) -> str:
    at = key - 9_000_000_000
    text = _TEXTS[at % len(_TEXTS)]
    comment = "CAST(NULL AS STRING)" if text is None else f"'{text}'"
    price, day = _PRICES[at % len(_PRICES)], _DAYS[at % len(_DAYS)]
    return (
        f"(CAST({key} AS BIGINT), CAST({at} AS BIGINT), '{status}', CAST({price} AS DECIMAL(15, 2)), DATE '{day}', "
        f"'3-MEDIUM', '{clerk}', 0, {comment})"
    )


def any_of(column: str, blocks: Sequence[Block]) -> str:
    """Return the condition that a key lies in one of the blocks."""
    return "(" + " OR ".join(f"{column} BETWEEN {block.first} AND {block.last}" for block in blocks) + ")"
