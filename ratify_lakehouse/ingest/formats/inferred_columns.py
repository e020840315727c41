"""Infers the columns of a table from its first file, or those that a later file adds: types that every value fits."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import IDENTIFIER, Column
from ratify_lakehouse.engines.duckdb.query_types import spark_type_of
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import RESCUED, RESERVED, Source
from ratify_lakehouse.ingest.formats.file_fields import ZONELESS, Field, FieldKind, Raw, shown_names
from ratify_lakehouse.ingest.formats.file_readers import reading
from ratify_lakehouse.sql.duckdb_sql import literal

if TYPE_CHECKING:
    import duckdb

_SAMPLE_ROWS = 20_480
_SAMPLE_VALUES = 1_000
_TEXT_TYPES = ("boolean", "bigint", "double", "date", "timestamp")
# An article such as 1E5 is none: programs write numbers with a fraction, or with the exponent's sign.
_ARTICLE = r"^\s*[0-9]+[eE][0-9]+\s*$"
_EXACT_IN_DOUBLE = 2**53


def is_plain(name: str) -> bool:
    """Whether a file's field can fill a column of this name."""
    return IDENTIFIER.fullmatch(name) is not None and name.lower() not in RESERVED


def infer(
    con: "duckdb.DuckDBPyConnection", source: Source, file: str, local: Path, only: Collection[str] | None = None
) -> tuple[Column, ...]:
    """Return columns for a file's fields, with types that `ratify_lakehouse.declarations` accepts.

    A field that never has a value becomes a string, and so does one of nested JSON unless all its objects have the same
    keys with the same types. Fields whose names are reserved, or have no Latin letter and no digit, get no column; without
    the column RESCUED for their values, the latter are an error.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        file: The file's name in the landing zone.
        local: Where its bytes are.
        only: Columns that are wanted, in lower case, by all of the file; None: all, by its first 20,480 records.

    Raises:
        BadFile: the file cannot be read, or has no field that can be a column.
    """
    sample = None if only else _SAMPLE_ROWS
    with reading(con, source, file, local, None, only, sample) as raw:
        fields = [field for field in raw.fields.values() if is_plain(field.column)]
        if not fields:
            raise BadFile(file, "none of its field names can be a column name; use letters, digits and _")
        nameless = [field.name for field in raw.fields.values() if not field.column]
        if nameless and RESCUED.name not in source.table.column_names:
            shown = shown_names(repr(name) if name else "" for name in nameless)
            raise BadFile(file, f"no column can be named after {shown}: name one for it in the source's declaration")
        candidates = [_candidates(con, raw, field) for field in fields]
        return tuple(
            Column(field.column, type_text)
            for field, type_text in zip(fields, _first_that_fit(con, raw, fields, candidates), strict=True)
        )


def _first_that_fit(
    con: "duckdb.DuckDBPyConnection", raw: Raw, fields: Sequence[Field], candidates: Sequence[Sequence[str]]
) -> list[str]:
    tests = [
        f"count({field.sql}) > 0 AND count({field.sql}) = count({_plainly(field, type_text)})"
        for field, types in zip(fields, candidates, strict=True)
        for type_text in types
    ]
    fits = iter(con.execute(f"SELECT {', '.join(['true', *tests])} FROM {raw.relation}").fetchone() or ())
    next(fits)
    found = [[type_text for type_text in types if next(fits)] for types in candidates]
    return [types[0] if types else "string" for types in found]


def _plainly(field: Field, type_text: str) -> str:
    value = field.as_type(sql_type(type_text))
    if field.kind is not FieldKind.TEXT or type_text != "double":
        return value
    return f"CASE WHEN NOT regexp_matches({field.sql}, {literal(_ARTICLE)}) THEN {value} END"


def _candidates(con: "duckdb.DuckDBPyConnection", raw: Raw, field: Field) -> Sequence[str]:
    import duckdb

    match field.kind:
        case FieldKind.TEXT:
            return _TEXT_TYPES
        case FieldKind.TYPED:
            return ["timestamp" if field.type in ZONELESS else spark_type_of(duckdb.sqltype(field.type)) or "string"]
        case FieldKind.JSON:
            some = f"FROM {raw.relation} WHERE {field.sql} IS NOT NULL LIMIT {_SAMPLE_VALUES}"
            found = con.execute(f"SELECT CAST({field.sql} AS VARCHAR) {some}").fetchall()
            try:
                shape = _shape([json.loads(text) for (text,) in found])
            except (ValueError, RecursionError):
                return []
            return ["date", "timestamp"] if shape == "string" else [shape] if shape else []


def _shape(values: Sequence[Any]) -> str | None:
    """The type of JSON values that are plainly of one; None where they are not."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "bigint"
    if kinds in ({float}, {int, float}):
        exact = all(abs(value) <= _EXACT_IN_DOUBLE for value in present if isinstance(value, int))
        return "double" if exact else None
    if kinds == {str}:
        return "string"
    if kinds == {list}:
        item = _shape([item for value in present for item in value])
        return f"array<{item}>" if item else None
    return _struct(present) if kinds == {dict} else None


def _struct(values: Sequence[dict[str, Any]]) -> str | None:
    names = list(values[0])
    if not names or any(set(value) != set(names) for value in values):
        return None
    shapes = {name: _shape([value[name] for value in values]) for name in names}
    if (
        len({name.lower() for name in names}) < len(names)
        or not all(shapes.values())
        or not all(map(IDENTIFIER.fullmatch, names))
    ):
        return None
    return f"struct<{','.join(f'{name}:{shape}' for name, shape in shapes.items())}>"
