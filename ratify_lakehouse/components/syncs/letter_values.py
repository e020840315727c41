"""The row of a dead letter as JSON from which an engine gives back the same values, whatever their types.

JSON has no words for some values, and readers take others for almost the same ones: they cut the microseconds of a
timestamp, or digits of a decimal, and do not read a map whose keys are no texts. Such values are texts that are cast back,
a map is an array of its entries, and the letter has the types that its row had. Text whose bytes are no UTF-8, which Spark
may have, is Base64. Each engine reads the letters of the other.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from ratify_lakehouse.column_types import NESTED, split_parts, sql_type
from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.syncs.letter_variants import variant_given_back, variant_held
from ratify_lakehouse.errors import QueryMismatch
from ratify_lakehouse.sql import duckdb_sql, spark_sql

# Every writer of JSON writes them so that every reader gives the same values back.
_AS_THEY_ARE = frozenset(["boolean", "tinyint", "smallint", "int", "bigint"])
_TEXT = re.compile(r"(string|char|varchar)\b")
_DATES = frozenset(["date", "timestamp", "timestamp_ntz"])
# Text that begins so is Base64, too.
_MARK = "ratify base64:"


def letter_sql(types: Mapping[str, str], sql: RuleDialect = SPARK) -> str:
    """Return SQL of the JSON text of a row.

    Args:
        types: Its columns, each with its type in Spark SQL's words.
        sql: The engine's words.
    """
    words = _words(sql)
    return words.json_of({name: _held(words, sql.identifier(name), type_) for name, type_ in types.items()})


def row_sql(types: Mapping[str, str], letter: str, alias: str, sql: RuleDialect = SPARK) -> tuple[str, str]:
    """Return what reads a letter: SQL of a struct of its values, and the columns that this struct gives under an alias.

    Args:
        types: As for `letter_sql`.
        letter: SQL of the JSON text.
        alias: Of the struct.
        sql: The engine's words.

    Raises:
        QueryMismatch: the engine does not have a type.
    """
    words = _words(sql)
    columns = (
        f"{_given_back(words, words.part(alias, name), type_)} AS {sql.identifier(name)}" for name, type_ in types.items()
    )
    return words.read(letter, types), ", ".join(columns)


class _LetterWords(Protocol):
    """An engine's words for the values of a letter, each of which is SQL."""

    def json_of(self, fields: Mapping[str, str]) -> str:
        """Return the JSON text of an object."""
        ...

    def struct(self, fields: Mapping[str, str]) -> str:
        """Return a struct of these expressions."""
        ...

    def part(self, struct: str, name: str) -> str:
        """Return a field of a struct."""
        ...

    def each(self, values: str, item: str, made: str) -> str:
        """Return the array of what is made of each item of an array, by its name."""
        ...

    def held(self, value: str, type_: str) -> str:
        """Return what stands for a plain value in the JSON."""
        ...

    def given_back(self, held: str, type_: str) -> str:
        """Return the plain value that something stands for."""
        ...

    def read(self, letter: str, types: Mapping[str, str]) -> str:
        """Return the struct of what stands for the values in a JSON text."""
        ...


class _SparkLetters:
    """See `_LetterWords`."""

    _mark = f"'\\u0000{_MARK}'"
    _written = "map('timestampFormat', {}, 'timestampNTZFormat', {}, 'timeZone', 'UTC')".format(
        *map(spark_sql.literal, ("yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"))
    )

    def json_of(self, fields: Mapping[str, str]) -> str:
        return f"to_json({self.struct(fields)}, {self._written})"

    def struct(self, fields: Mapping[str, str]) -> str:
        listed = (f"{spark_sql.literal(name)}, {value}" for name, value in fields.items())
        return f"named_struct({', '.join(listed)})"

    def part(self, struct: str, name: str) -> str:
        return f"{struct}.{spark_sql.identifier(name)}"

    def each(self, values: str, item: str, made: str) -> str:
        return f"transform({values}, {item} -> {made})"

    def held(self, value: str, type_: str) -> str:
        if _TEXT.match(type_):
            return self._text_held(value if type_ == "string" else f"CAST({value} AS STRING)")
        if type_ == "variant":
            return variant_held(value, self._text_held)
        # Jackson formats times, and writes binary as Base64.
        as_it_is = type_ in _AS_THEY_ARE or type_ in _DATES or type_ == "binary"
        return value if as_it_is else f"CAST({value} AS STRING)"

    def given_back(self, held: str, type_: str) -> str:
        if type_ == "void":
            return "NULL"
        if _TEXT.match(type_):
            text = self._text_given_back(held)
            return text if type_ == "string" else f"CAST({text} AS {type_})"
        if type_ == "variant":
            return variant_given_back(held, self._text_given_back)
        return held if self._held_type(type_) == type_ else f"CAST({held} AS {type_})"

    def read(self, letter: str, types: Mapping[str, str]) -> str:
        schema = ", ".join(f"{spark_sql.identifier(name)} {self._held_type(type_)}" for name, type_ in types.items())
        # A value that is none of the type would be NULL otherwise.
        return f"from_json({letter}, {spark_sql.literal(schema)}, map('mode', 'FAILFAST'))"

    def _held_type(self, type_: str) -> str:
        """The type of what stands for a value in the JSON."""
        kind, parts = _parts(type_)
        match kind:
            case "array":
                return f"array<{self._held_type(parts[0][1])}>"
            case "map":
                key, value = (self._held_type(part) for _, part in parts)
                return f"array<struct<key: {key}, value: {value}>>"
            case "struct":
                fields = (f"{spark_sql.identifier(name)}: {self._held_type(part)}" for name, part in parts)
                return f"struct<{', '.join(fields)}>"
            case _:
                return type_ if type_ in _AS_THEY_ARE or type_ == "binary" else "string"

    def _text_held(self, text: str) -> str:
        """SQL of what stands for a text in the JSON, which would have U+FFFD for bytes that are no UTF-8."""
        as_it_is = f"is_valid_utf8({text}) AND NOT startswith({text}, {self._mark})"
        # NULL, of which neither is known, stays NULL.
        return f"if({as_it_is}, {text}, concat({self._mark}, base64(CAST({text} AS BINARY))))"

    def _text_given_back(self, held: str) -> str:
        """SQL of the text that something stands for."""
        bytes_ = f"unbase64(substr({held}, length({self._mark}) + 1))"
        return f"if(startswith({held}, {self._mark}), CAST({bytes_} AS STRING), {held})"


class _DuckDBLetters:
    """See `_LetterWords`."""

    _mark = f"(chr(0) || '{_MARK}')"
    _formats: Mapping[str, str] = {"timestamp": "%Y-%m-%dT%H:%M:%S.%fZ", "timestamp_ntz": "%Y-%m-%dT%H:%M:%S.%f"}

    def json_of(self, fields: Mapping[str, str]) -> str:
        return f"CAST(to_json({self.struct(fields)}) AS VARCHAR)"

    def struct(self, fields: Mapping[str, str]) -> str:
        listed = (f"{duckdb_sql.identifier(name)} := {value}" for name, value in fields.items())
        return f"struct_pack({', '.join(listed)})"

    def part(self, struct: str, name: str) -> str:
        return f"struct_extract({struct}, {duckdb_sql.literal(name)})"

    def each(self, values: str, item: str, made: str) -> str:
        return f"list_transform({values}, lambda {item}: {made})"

    def held(self, value: str, type_: str) -> str:
        if _TEXT.match(type_):
            marked = f"{self._mark} || base64(encode({value}))"
            return f"CASE WHEN starts_with({value}, {self._mark}) THEN {marked} ELSE {value} END"
        if type_ == "binary":
            return f"base64({value})"
        if form := self._formats.get(type_):
            return f"strftime({value}, {duckdb_sql.literal(form)})"
        return value if type_ in _AS_THEY_ARE else f"CAST({value} AS VARCHAR)"

    def given_back(self, held: str, type_: str) -> str:
        if type_ == "void":
            return "NULL"
        if _TEXT.match(type_):
            bytes_ = f"from_base64(substr({held}, length({self._mark}) + 1))"
            return f"CASE WHEN starts_with({held}, {self._mark}) THEN decode({bytes_}) ELSE {held} END"
        if type_ == "binary":
            return f"from_base64({held})"
        if spark_sql.has_variant(type_):
            raise QueryMismatch(
                "DuckDB does not have the VARIANT of dead letters that Spark has found: replay them by Spark."
            )
        return f"CAST({held} AS {sql_type(type_).sql})"

    def read(self, letter: str, types: Mapping[str, str]) -> str:
        # All plain values as texts: it takes one that does not fit for NULL, where a cast refuses it.
        held = json.dumps({name: self._held(type_) for name, type_ in types.items()})
        return f"json_transform({letter}, {duckdb_sql.literal(held)})"

    def _held(self, type_: str) -> object:
        """The structure of what stands for a value in the JSON."""
        kind, parts = _parts(type_)
        match kind:
            case "array":
                return [self._held(parts[0][1])]
            case "map":
                key, value = (self._held(part) for _, part in parts)
                return [{"key": key, "value": value}]
            case "struct":
                return {name: self._held(part) for name, part in parts}
            case _:
                return "VARCHAR"


def _words(sql: RuleDialect) -> _LetterWords:
    return _SparkLetters() if sql is SPARK else _DuckDBLetters()


def _parts(type_: str) -> tuple[str, list[tuple[str, str]]]:
    """The kind of a nested type, and its parts with the names of a struct's fields; otherwise no kind."""
    match = NESTED.match(type_)
    if not match:
        return "", []
    kind, inner = match.group(1).lower(), split_parts(match.group(2))
    if kind != "struct":
        return kind, [("", part) for part in inner]
    return kind, [(name, part) for name, _, part in (each.partition(":") for each in inner)]


def _held(words: _LetterWords, value: str, type_: str) -> str:
    """SQL of what stands for a value in the JSON."""
    return _rebuilt(words, value, type_, words.held, "map_entries({})", "{}")


def _given_back(words: _LetterWords, held: str, type_: str) -> str:
    """SQL of the value that something stands for."""
    return _rebuilt(words, held, type_, words.given_back, "{}", "map_from_entries({})")


def _rebuilt(
    words: _LetterWords,
    value: str,
    type_: str,
    leaf: Callable[[str, str], str],
    entries: str,
    from_entries: str,
    depth: int = 0,
) -> str:
    """SQL of a value in which each plain one is replaced, given its SQL and type.

    `entries` gives the entries of a map, and `from_entries` what is made of the new ones; a map is an array of them in JSON.
    """
    kind, parts = _parts(type_)
    item = f"ratify_{depth}"

    def inner(at: str, of: str) -> str:
        return _rebuilt(words, at, of, leaf, entries, from_entries, depth + 1)

    match kind:
        case "array":
            return words.each(value, item, inner(item, parts[0][1]))
        case "map":
            names = zip(("key", "value"), parts, strict=True)
            made = {name: inner(words.part(item, name), part) for name, (_, part) in names}
            return from_entries.format(words.each(entries.format(value), item, words.struct(made)))
        case "struct":
            made = {name: inner(words.part(value, name), part) for name, part in parts}
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE {words.struct(made)} END"
        case _:
            return leaf(value, type_)
