"""The fields of a landed file of any format: SQL of their values, and how they are converted to a column's type."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ratify_lakehouse.column_types import SqlType, is_numeric
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.formats.fitting_values import from_json, from_number, from_text, plain_number
from ratify_lakehouse.sql.duckdb_sql import literal

ZONELESS = frozenset(["TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP_MS", "TIMESTAMP_S"])
"""DuckDB's types of timestamps without a zone, by the precision of their fractions."""


class FieldKind(Enum):
    """What a field's SQL gives: a text, a JSON value, or a value of the file's own type."""

    TEXT = auto()
    JSON = auto()
    TYPED = auto()


@dataclass(frozen=True)
class Field:
    """A field of a file: its name there, SQL of its value in `Raw.relation`, that value's own type, and its column.

    `decimal` and `thousands` are as in `CsvDialect`.
    """

    name: str
    sql: str
    kind: FieldKind = FieldKind.TEXT
    type: str = "VARCHAR"
    column: str = ""
    decimal: str = "."
    thousands: str = ""

    @property
    def text(self) -> str:
        """SQL of the value as a person reads it."""
        return f"({self.sql} ->> '$')" if self.kind is FieldKind.JSON else f"CAST({self.sql} AS VARCHAR)"

    def as_type(self, wanted: SqlType) -> str:
        """Return SQL of the value as the wanted type, NULL where it cannot be that unchanged."""
        if self.kind is FieldKind.JSON:
            return from_json(self.sql, wanted)
        if (self.decimal, self.thousands) != (".", "") and is_numeric(wanted.name):
            return from_text(plain_number(self.sql, self.decimal, self.thousands), wanted)
        if self.kind is FieldKind.TEXT or self.type == "VARCHAR":
            return from_text(self.sql, wanted)
        return self._typed(wanted)

    def always_fits(self, wanted: SqlType) -> bool:
        """Whether every value is one of the wanted type, so that no check is needed."""
        return (wanted.name == "VARCHAR" and self.type != "BLOB") or (self.kind is FieldKind.TYPED and self._is(wanted))

    def _is(self, wanted: SqlType) -> bool:
        # DuckDB omits the quotes of names where it can.
        return self.type.replace('"', "") == wanted.sql.replace('"', "")

    def _typed(self, wanted: SqlType) -> str:
        nested = self.type.endswith(("]", ")")) and not self.type.startswith("DECIMAL")
        if self._is(wanted):
            return self.sql
        if is_numeric(self.type) and is_numeric(wanted.name):
            return from_number(self.sql, self.type, wanted)
        if nested:
            return from_json(f"to_json({self.sql})", wanted)
        if self.type == "BLOB" and wanted.name == "VARCHAR":
            return f"TRY(decode({self.sql}))"
        if self.type in ZONELESS and wanted.name == "TIMESTAMP WITH TIME ZONE":
            return f"CAST({self.sql} AS TIMESTAMP) AT TIME ZONE 'UTC'"
        return from_text(self.text, wanted)

    @property
    def json(self) -> str:
        """SQL of the value as JSON text, unchanged; binary in Base64."""
        if self.kind is FieldKind.JSON:
            # DuckDB accepts NaN and Infinity in JSON; other readers of the rescued JSON may not.
            not_json = rf"regexp_matches({self.sql}, '(?i)(^|[:\[,])\s*-?(nan|inf)')"
            return f"CASE WHEN {not_json} THEN to_json(CAST({self.sql} AS VARCHAR)) ELSE {self.sql} END::VARCHAR"
        if is_numeric(self.type) and self.type not in ("FLOAT", "DOUBLE"):
            return f"CAST({self.sql} AS VARCHAR)"
        value = f"to_base64({self.sql})" if self.type == "BLOB" else self.sql
        return f"to_json({value if self.type not in ('FLOAT', 'DOUBLE') else f'CAST({value} AS VARCHAR)'})::VARCHAR"


@dataclass(frozen=True)
class Raw:
    """A landed file, opened by its reader.

    Attributes:
        relation: What follows FROM.
        row: SQL of the record's number, from 1.
        fields: The wanted fields, by their columns' names in lower case, in the file's order.
        others: Names of the fields that are not wanted.
        rest: SQL of the other fields' values that are not NULL, as `"name":value` with commas between; empty for none.
    """

    relation: str
    row: str
    fields: Mapping[str, Field]
    others: tuple[str, ...]
    rest: str


def raw(relation: str, row: str, fields: Iterable[Field], wanted: Collection[str] | None) -> Raw:
    """Return an opened file of which some fields are wanted: those of these columns, in lower case, or all."""
    fields = list(fields)
    picked = {field.column.lower(): field for field in fields if wanted is None or field.column.lower() in wanted}
    others = [field for field in fields if field.column.lower() not in picked]
    pairs = ", ".join(pair(field, f"{field.sql} IS NOT NULL") for field in others)
    return Raw(relation, row, picked, tuple(field.name for field in others), f"concat_ws(',', {pairs})" if pairs else "''")


def pair(field: Field, condition: str) -> str:
    """Return SQL of a field's `"name":value` in JSON where a condition holds, NULL elsewhere."""
    return f"CASE WHEN {condition} THEN to_json({literal(field.name)})::VARCHAR || ':' || {field.json} END"


def doubled_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two of the names that are one where case means nothing; None if there are none."""
    seen = dict[str, str]()
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    return None


def shown_names(names: Iterable[str]) -> str:
    """Return names of fields as an error shows them."""
    nameless = "a column without a name (does the header end with a delimiter, as spreadsheets write it?)"
    return ", ".join(name[:60] or nameless for name in names)[:200]


def check_names(source: Source, file: str, names: Iterable[str]) -> None:
    """Check that no two fields of a file fill one column; names ignore case, as tables do.

    Raises:
        BadFile: two fields fill one column.
    """
    seen = dict[str, str]()
    for name in names:
        column = source.column_of(name).lower()
        if column and column in seen:
            first = seen[column]
            if first.lower() == name.lower():
                raise BadFile(file, f"two columns are called {first!r} and {name!r}; names ignore case: rename one")
            raise BadFile(file, f"its columns {first!r} and {name!r} are both the table's column {column}: rename one")
        seen[column] = name
