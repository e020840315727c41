"""The partitions of a table: days or listed values of one of its columns, as Dagster knows them and as SQL selects them."""

import datetime as dt
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import dagster as dg

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.errors import PartitionMissing, QueryMismatch

_SHOWN = 5
# The partition of a row is the text that Spark makes of its number.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_LISTED = frozenset({"string", "tinyint", "smallint", "int", "bigint"})


@dataclass(frozen=True)
class TablePartitions:
    """The partitions of a table.

    Attributes:
        column: The column whose values they are.
        start: The first day; None where values are listed.
        end: The day after the last one. Until then, or where it is None, today (UTC) is the last.
        values: The listed values.
    """

    column: str
    start: dt.date | None = None
    end: dt.date | None = None
    values: tuple[str, ...] = ()

    @property
    def definition(self) -> dg.PartitionsDefinition[str]:
        """The partitions as Dagster knows them."""
        if self.start is None:
            return dg.StaticPartitionsDefinition(list(self.values))
        # A day is a partition of Dagster when it has ended; here as soon as it has rows.
        return dg.DailyPartitionsDefinition(
            self.start.isoformat(), end_date=self.end.isoformat() if self.end else None, end_offset=1
        )

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the partitions that there are now."""
        return self.definition.get_partition_keys()

    def check(self, chosen: Collection[str], table: str) -> None:
        """Check that there are these partitions.

        Raises:
            PartitionMissing: there is one not.
        """
        keys = self.keys
        if missing := sorted(set(chosen) - set(keys)):
            there = f"{keys[0]} to {keys[-1]}" if self.start and keys else ", ".join(keys) or "none yet"
            raise PartitionMissing(
                f"{', '.join(missing[:_SHOWN])} is not a partition of {table}. Its partitions of {self.column} are: {there}."
                " Name one of these, or declare it under `partitions`."
            )

    def check_type(self, declaration: TableDeclaration) -> None:
        """Check that the column can have these partitions.

        Raises:
            QueryMismatch: it is of another type.
        """
        found = declaration.column_types[self.column]
        if not self.start and found not in _LISTED:
            raise QueryMismatch(
                f"{declaration.table_name}: its partitions are listed values of {self.column}, which is a {found}: "
                f"write CAST({self.column} AS STRING) AS {self.column} in the query."
            )
        other = [value for value in self.values if not _INTEGER.fullmatch(value)] if found != "string" else []
        if other:
            raise QueryMismatch(
                f"{declaration.table_name}: {other[0]!r}, listed as a partition of {self.column}, is not how a number is "
                f"written: write it without zeros before it, or CAST({self.column} AS STRING) AS {self.column} in the query."
            )
        if self.start and found != "date":
            raise QueryMismatch(
                f"{declaration.table_name}: its partitions are days of {self.column}, which is a {found}: write "
                f"CAST({self.column} AS DATE) AS {self.column} in the query."
            )

    def values_of(self, keys: Sequence[str], type_: str, sql: RuleDialect) -> str:
        """Return the query for the values of partitions, one a row; `sql`: the words of its engine."""
        listed = ", ".join(f"({sql.literal(key)})" for key in keys)
        return f"SELECT CAST(key AS {type_}) AS {sql.identifier(self.column)} FROM (VALUES {listed}) AS t(key)"

    def outside(self, relation: str, type_: str, sql: RuleDialect) -> str:
        """Return the condition on a relation's rows that they belong to no partition; `sql`: the words of its engine."""
        column, literal = f"{relation}.{sql.identifier(self.column)}", sql.literal
        if self.start:
            keys = self.keys
            of_days = f"{column} < DATE {literal(keys[0])} OR {column} > DATE {literal(keys[-1])}" if keys else "true"
            return f"({column} IS NULL OR {of_days})"
        listed = ", ".join(f"CAST({literal(value)} AS {type_})" for value in self.values)
        return f"({column} IS NULL OR {column} NOT IN ({listed}))"


def named(keys: Sequence[str]) -> str:
    """Return partitions for people: a few, and how many more."""
    more = f" and {len(keys) - _SHOWN:,} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more
