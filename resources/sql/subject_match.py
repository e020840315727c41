"""How rows of a subject are known in a table, in the SQL of each engine."""

from dataclasses import dataclass

from resources.sql import duckdb_sql, spark_sql

VALUE = "subject"
"""DuckDB's parameter with the subject's value."""


@dataclass(frozen=True)
class Match:
    """One way in which a row is known as the subject's.

    Attributes:
        column: Whose value is the subject's, or JSON that has it.
        name: The field of the JSON; empty where the column has the value itself.
        sync: Of dead letters: only those of this sync.
    """

    column: str
    name: str = ""
    sync: str = ""

    @property
    def duckdb(self) -> str:
        """DuckDB's condition for such a row; the value is the parameter `VALUE`."""
        column = duckdb_sql.identifier(self.column)
        found = f"json_extract_string({column}, '$.{self.name}')" if self.name else f"CAST({column} AS VARCHAR)"
        only = f" AND sync = {duckdb_sql.literal(self.sync)}" if self.sync else ""
        return f"coalesce({found} = ${VALUE}{only}, false)"

    def spark(self, table: str, value: str) -> str:
        """Return Spark's condition for such a row.

        Args:
            table: Alias of the table.
            value: Expression for the value.
        """
        column = f"{table}.{spark_sql.identifier(self.column)}"
        found = f"get_json_object({column}, '$.{self.name}')" if self.name else f"CAST({column} AS STRING)"
        only = f" AND {table}.sync = {spark_sql.literal(self.sync)}" if self.sync else ""
        return f"({found} = {value}{only})"
