"""Rows counted and summed up to a number that does not depend on their order, alike in Spark and in DuckDB.

A row's number is the first 60 bits of the MD5 of its values as text; the digest is the sum of all. It is for columns of
which both engines write the same text: integers, decimals, strings and dates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ratify_lakehouse.column_types import DECIMAL, SAME_TEXT
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import UnsafeDeclaration


@dataclass(frozen=True)
class Block:
    """Rows of a table whose first column lies between two keys. Each is written, changed and deleted as a whole."""

    first: int
    last: int

    @property
    def keys(self) -> range:
        """Its keys."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Digest:
    """How many rows, and their sum."""

    rows: int
    sum: int


@dataclass(frozen=True)
class DigestPart:
    """What is to be summed up.

    Attributes:
        source: A table with its engine's name for it, with or without a version, or a query in brackets.
        columns: Names of its columns in order; empty to count only.
        block: Which of its rows; None for all.
    """

    source: str
    columns: tuple[str, ...]
    block: Block | None = None
    key: str = ""

    @classmethod
    def of(cls, table: TableDeclaration, source: str, block: Block | None = None, *, count: bool = False) -> "DigestPart":
        """Return a part of a table, or of a query that gives its columns.

        Raises:
            UnsafeDeclaration: it has a column of a type whose text differs from engine to engine.
        """
        for column in table.columns:
            if column.type not in SAME_TEXT and not DECIMAL.match(column.type):
                raise UnsafeDeclaration(f"{table.name}, column {column.name}: no digest is defined for a {column.type}.")
        return cls(source, () if count else table.column_names, block, table.column_names[0])

    @property
    def where(self) -> str:
        """The condition on its rows."""
        return f"{self.key} BETWEEN {self.block.first} AND {self.block.last}" if self.block else "true"


def by_spark(spark: Spark, parts: Sequence[DigestPart]) -> list[Digest]:
    """Sum up each part, in one query. Blocks of the same source do not overlap."""
    if not parts:
        return []
    rows = spark.rows(spark.sql(_query(parts, "CAST(conv({}, 16, 10) AS DECIMAL(38, 0))")))
    return _in_order(parts, [tuple(row.values()) for row in rows])


def by_duckdb(session: DuckDBSession, parts: Sequence[DigestPart]) -> list[Digest]:
    """Sum up each part, in one query. The catalog is to be attached."""
    return _in_order(parts, session.rows(_query(parts, "('0x' || {})::BIGINT"))) if parts else []


def _in_order(parts: Sequence[DigestPart], rows: Sequence[tuple[int, int, int]]) -> list[Digest]:
    found = {part: Digest(int(count), int(total)) for part, count, total in rows}
    return [found.get(at, Digest(0, 0)) for at in range(len(parts))]


def _query(parts: Sequence[DigestPart], number: str) -> str:
    """A query that gives the number of each part that has rows, how many, and their sum. It reads each source once."""
    sources: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for at, part in enumerate(parts):
        sources.setdefault((part.source, part.columns), []).append(at)
    return "\nUNION ALL ".join(
        f"SELECT part, count(*) AS n, {_sum(columns, number)} AS total "
        f"FROM (SELECT *, CASE {' '.join(f'WHEN {parts[at].where} THEN {at}' for at in numbers)} END AS part FROM {source}) "
        "WHERE part IS NOT NULL GROUP BY part"
        for (source, columns), numbers in sources.items()
    )


def _sum(columns: Sequence[str], number: str) -> str:
    if not columns:
        return "0"
    # NULL has a text that no value has.
    texts = ", ".join(f"coalesce(CAST({column} AS STRING), chr(30))" for column in columns)
    return f"sum({number.format(f'substr(md5(concat_ws(chr(31), {texts})), 1, 15)')})"
