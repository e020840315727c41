"""Rows of which there is to be one for each key: those of a query, and those that a table has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.stored_table import LOST_ROWS
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import QueryMismatch
from ratify_lakehouse.wording import keys_shown

_SHOWN_KEYS = 3


@dataclass(frozen=True)
class KeyedRows:
    """Rows of a query that a table with keys gets.

    Attributes:
        sql: The words of the engine that has them.
        table: The table.
        keys: The columns of its key.
        query: The query for them, over `{rows}`.
        advice: What to do where a key has several.
    """

    sql: RuleDialect
    table: TableDeclaration
    keys: Sequence[str]
    query: str
    advice: str

    @property
    def doubled(self) -> str:
        """The query for whether a key has several rows: a number that is 0 where none has."""
        return f"SELECT count(*) FROM ({self._several})"

    @property
    def _several(self) -> str:
        return several(f"({self.query})", self.keys, self.sql)

    def mismatch(self, records: Callable[[str], Sequence[Mapping[str, Any]]]) -> QueryMismatch:
        """Return the error for keys that have several rows, given what runs a query over `{rows}`."""
        shown = keys_shown(records(self._several), self.keys, self.table.personal)
        name, listed = self.table.table_name, ", ".join(self.keys)
        return QueryMismatch(f"{name}: several rows of the query have the same {listed}: {shown}. {self.advice}")


def several(rows: str, keys: Sequence[str], sql: RuleDialect) -> str:
    """Return the query for a few keys of which a relation has several rows."""
    listed = sql.listed(keys)
    return f"SELECT {listed} FROM {rows} GROUP BY {listed} HAVING count(*) > 1 LIMIT {_SHOWN_KEYS}"


def check_stored_keys(spark: Spark, declaration: TableDeclaration) -> None:
    """Check that no two rows of a table have the same keys, as after its keys were made fewer.

    Raises:
        QueryMismatch: some have.
    """
    check_keys_of(declaration, spark.sql_name(declaration), SPARK, lambda text: spark.rows(spark.sql(text)))


def check_keys_of(
    declaration: TableDeclaration, stored: str, sql: RuleDialect, records: Callable[[str], Sequence[Mapping[str, Any]]]
) -> None:
    """Check the keys of stored rows of a table, by any engine.

    Args:
        declaration: The table.
        stored: The rows: a relation.
        sql: The words of the engine.
        records: Runs a query, and returns its rows.

    Raises:
        QueryMismatch: two rows have the same.
    """
    keys = declaration.keys
    if found := records(several(stored, keys, sql)):
        raise QueryMismatch(
            f"{declaration.table_name} has several rows with the same {', '.join(keys)} "
            f"({keys_shown(found, keys, declaration.personal)}), of which its query returns one. They date from when its "
            f"keys were different, or another program wrote them: {LOST_ROWS}"
        )
