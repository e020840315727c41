"""How rows of a subject are known in a table, in the SQL of each engine."""

from dataclasses import dataclass

from ratify_lakehouse.sql import duckdb_sql, spark_sql

KIND = "[a-z][a-z0-9_]*"
"""Pattern of a kind of subject, such as user."""
VALUE = "subject"
"""DuckDB's parameter with the subject's value."""


@dataclass(frozen=True)
class Match:
    """One way in which a row is known as the subject's.

    Attributes:
        column: Whose value is the subject's, or JSON that has it.
        name: The field of the JSON, or the path of one, such as user.id; empty where the column has the value itself.
        sync: Of dead letters: only those of this sync.
        binary: Whether the column is binary: its bytes are a text in UTF-8, which may be no JSON.
        anywhere: Whether any part of the column's value counts, as a field of its JSON: nothing is declared of it.
        nested: Whether the column has parts, such as a struct.
    """

    column: str
    name: str = ""
    sync: str = ""
    binary: bool = False
    anywhere: bool = False
    nested: bool = False

    @property
    def duckdb(self) -> str:
        """DuckDB's condition for such a row; the value is the parameter `VALUE`."""
        only = f" AND sync = {duckdb_sql.literal(self.sync)}" if self.sync else ""
        text = self._duckdb_text
        found = f"{text} = ${VALUE}"
        if self.anywhere:
            parts = f"json_tree(CASE WHEN json_valid({text}) THEN {text} ELSE 'null' END)"
            found = f"({found} OR EXISTS (SELECT 1 FROM {parts} AS part WHERE (part.atom ->> '$') = ${VALUE}))"
        return f"coalesce({found}{only}, false)"

    @property
    def _duckdb_text(self) -> str:
        column = duckdb_sql.identifier(self.column)
        if self.nested:
            return f"CAST(to_json({column}) AS VARCHAR)"
        if not self.binary:
            return f"json_extract_string({column}, '$.{self.name}')" if self.name else f"CAST({column} AS VARCHAR)"
        text = f"try(decode({column}))"
        # DuckDB may evaluate what a CASE guards.
        return f"try(json_extract_string({text}, '$.{self.name}'))" if self.name else text

    def spark(self, table: str, value: str) -> str:
        """Return Spark's condition for such a row.

        Args:
            table: Alias of the table.
            value: Expression for the value.
        """
        only = f" AND {table}.sync = {spark_sql.literal(self.sync)}" if self.sync else ""
        return f"({self.spark_text(table)} = {value}{only})"

    def spark_text(self, table: str) -> str:
        """Return Spark's expression for the value in a row of the table with this alias, as text."""
        column = f"{table}.{spark_sql.identifier(self.column)}"
        if not self.name:
            return f"CAST({column} AS STRING)"
        text = f"CAST({column} AS STRING)" if self.binary else column
        return f"get_json_object({text}, '$.{self.name}')"
