"""A table with a column for each type, filled by every writer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.column_types import SqlType, sql_type
from tests.compatibility.matrix import Matrix
from tests.compatibility.matrix_cases import MAPS
from tests.compatibility.matrix_outcomes import WRITERS
from tests.compatibility.matrix_values import Dialect, other_zero, plain, sql

Types = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class WideTable:
    """A table with a column for each type; row n has the n-th value of each, and NULL where there are no more."""

    matrix: Matrix
    types: Types

    @property
    def rows(self) -> range:
        return range(max(map(len, self.types.values())) + 1)

    def column(self, type_: str) -> str:
        return f"c{list(self.types).index(type_)}"

    @property
    def writers(self) -> Sequence[str]:
        return [writer for writer in WRITERS if writer != "insert" or self.types is not MAPS]

    def value(self, type_: str, row: int) -> Any:
        return self.types[type_][row] if row < len(self.types[type_]) else None

    def select(self, writer: str, row: int, dialect: Dialect) -> str:
        values = ", ".join(
            f"{sql(self.value(type_, row), sql_type(type_), dialect)} AS {self.column(type_)}" for type_ in self.types
        )
        return f"SELECT '{writer}' AS writer, {row} AS id, {values}"

    def condition(self, types: Sequence[str], row: int, dialect: Dialect) -> str:
        """One that the row meets, with each value as both a bound and the value itself."""
        met = list[str]()
        for type_ in types:
            if (value := self.value(type_, row)) is None:
                met.append(f"{self.column(type_)} IS NULL")
            else:
                text = sql(other_zero(value), sql_type(type_), dialect)
                met += [f"{self.column(type_)} {compared} {text}" for compared in ("=", "<=", ">=")]
        return " AND ".join(met)

    def fill(self) -> None:
        spark = self.matrix.lake.spark.session
        self.matrix.lake.run(self.matrix.table.ddl("ratify"))
        spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
        try:
            union = " UNION ALL ".join(self.select("spark", row, "spark") for row in self.rows)
            self.matrix.lake.run(f"INSERT INTO {self.matrix.name} {union}")
        finally:
            spark.conf.unset("spark.sql.files.maxRecordsPerFile")
        for row in self.rows:
            self.matrix.append(self.select("append", row, "duckdb"), f"row {row}")
        if "insert" in self.writers:
            self.matrix.insert(" UNION ALL ".join(self.select("insert", row, "duckdb") for row in self.rows))

    def differences(self, reader: str) -> dict[tuple[str, str, int], tuple[Any, Any]]:
        read = {(row["writer"], row["id"]): row for row in getattr(self.matrix, reader)()}
        assert read.keys() == {(writer, row) for writer in self.writers for row in self.rows}
        pairs_ = {
            (writer, type_, row): (
                plain(self.value(type_, row), sql_type(type_)),
                form(read[writer, row][self.column(type_)], sql_type(type_)),
            )
            for writer in self.writers
            for row in self.rows
            for type_ in self.types
        }
        return {where: pair for where, pair in pairs_.items() if pair[0] != pair[1]}


def form(value: Any, type_: SqlType) -> Any:
    try:
        return plain(value, type_)
    except (AttributeError, TypeError, ValueError):
        return f"not {type_.spark}: {value!r}"
