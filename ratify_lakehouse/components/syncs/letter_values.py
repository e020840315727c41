"""The row of a dead letter as JSON from which Spark gives back the same values, whatever their types.

JSON has no words for some values, and `from_json` reads others as almost the same ones: the microseconds of a timestamp are
cut by default, and a map with keys that are no texts is not read at all. Such values are texts that Spark casts back, a map
is an array of its entries, and the letter has the types that its row had. Text whose bytes are no UTF-8 is Base64.
"""

import re
from collections.abc import Callable, Mapping

from ratify_lakehouse.column_types import DECIMAL, NESTED, split_parts
from ratify_lakehouse.components.syncs.letter_variants import variant_given_back, variant_held
from ratify_lakehouse.sql.spark_sql import identifier, literal

# Jackson writes them, and Spark's reader gives the same values back.
_AS_THEY_ARE = frozenset(["boolean", "tinyint", "smallint", "int", "bigint", "binary"])
_TEXT = re.compile(r"(string|char|varchar)\b")
# Text that begins so is Base64, too.
_BASE64 = "'\\u0000ratify base64:'"
_FORMATTED = frozenset(["date", "timestamp", "timestamp_ntz"])
_WRITTEN = "map('timestampFormat', {}, 'timestampNTZFormat', {}, 'timeZone', 'UTC')".format(
    *map(literal, ("yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"))
)
# A value that is none of the type would be NULL otherwise.
_READ = "map('mode', 'FAILFAST')"


def letter_sql(types: Mapping[str, str]) -> str:
    """Return SQL of the JSON text of a row.

    Args:
        types: Its columns, each with its type in Spark SQL's words.
    """
    fields = (f"{literal(name)}, {_held(identifier(name), type_)}" for name, type_ in types.items())
    return f"to_json(named_struct({', '.join(fields)}), {_WRITTEN})"


def row_sql(types: Mapping[str, str], letter: str, alias: str) -> tuple[str, str]:
    """Return what reads a letter: SQL of a struct of its values, and the columns that this struct gives under an alias.

    Args:
        types: As for `letter_sql`.
        letter: SQL of the JSON text.
        alias: Of the struct.
    """
    schema = ", ".join(f"{identifier(name)} {_held_type(type_)}" for name, type_ in types.items())
    columns = (f"{_given_back(f'{alias}.{identifier(name)}', type_)} AS {identifier(name)}" for name, type_ in types.items())
    return f"from_json({letter}, {literal(schema)}, {_READ})", ", ".join(columns)


def as_texts(types: Mapping[str, str]) -> dict[str, str]:
    """Return the types by which a letter that has none is read: texts where JSON's own text of a value is that."""
    return {
        name: type_ if NESTED.match(type_) or type_ in {"string", "binary"} else "string" for name, type_ in types.items()
    }


def _parts(type_: str) -> tuple[str, list[tuple[str, str]]]:
    """The kind of a nested type, and its parts with the names of a struct's fields; otherwise no kind."""
    match = NESTED.match(type_)
    if not match:
        return "", []
    kind, inner = match.group(1).lower(), split_parts(match.group(2))
    if kind != "struct":
        return kind, [("", part) for part in inner]
    return kind, [(name, part) for name, _, part in (each.partition(":") for each in inner)]


def _held_type(type_: str) -> str:
    """The type of what stands for a value in the JSON."""
    kind, parts = _parts(type_)
    match kind:
        case "array":
            return f"array<{_held_type(parts[0][1])}>"
        case "map":
            key, value = (_held_type(part) for _, part in parts)
            return f"array<struct<key: {key}, value: {value}>>"
        case "struct":
            return f"struct<{', '.join(f'{identifier(name)}: {_held_type(part)}' for name, part in parts)}>"
        case _:
            return type_ if type_ in _AS_THEY_ARE or DECIMAL.match(type_) else "string"


def _text_held(text: str) -> str:
    """SQL of what stands for a text in the JSON, which would have U+FFFD for bytes that are no UTF-8."""
    as_it_is = f"is_valid_utf8({text}) AND NOT startswith({text}, {_BASE64})"
    # NULL, of which neither is known, stays NULL.
    return f"if({as_it_is}, {text}, concat({_BASE64}, base64(CAST({text} AS BINARY))))"


def _text_given_back(held: str) -> str:
    """SQL of the text that something stands for."""
    bytes_ = f"unbase64(substr({held}, length({_BASE64}) + 1))"
    return f"if(startswith({held}, {_BASE64}), CAST({bytes_} AS STRING), {held})"


def _held(value: str, type_: str) -> str:
    """SQL of what stands for a value in the JSON."""

    def leaf(at: str, of: str) -> str:
        if _TEXT.match(of):
            return _text_held(at if of == "string" else f"CAST({at} AS STRING)")
        if of == "variant":
            return variant_held(at, _text_held)
        return at if of in _AS_THEY_ARE or of in _FORMATTED or DECIMAL.match(of) else f"CAST({at} AS STRING)"

    return _rebuilt(value, type_, leaf, "map_entries({})", "{}")


def _given_back(held: str, type_: str) -> str:
    """SQL of the value that something stands for."""

    def leaf(at: str, of: str) -> str:
        if of == "void":
            return "NULL"
        if _TEXT.match(of):
            text = _text_given_back(at)
            return text if of == "string" else f"CAST({text} AS {of})"
        if of == "variant":
            return variant_given_back(at, _text_given_back)
        return at if _held_type(of) == of else f"CAST({at} AS {of})"

    return _rebuilt(held, type_, leaf, "{}", "map_from_entries({})")


def _rebuilt(
    value: str, type_: str, leaf: Callable[[str, str], str], entries: str, from_entries: str, depth: int = 0
) -> str:
    """SQL of a value in which each plain one is replaced, given its SQL and type.

    `entries` gives the entries of a map, and `from_entries` what is made of the new ones; a map is an array of them in JSON.
    """
    kind, parts = _parts(type_)
    item = f"ratify_{depth}"

    def inner(at: str, of: str) -> str:
        return _rebuilt(at, of, leaf, entries, from_entries, depth + 1)

    match kind:
        case "array":
            return f"transform({value}, {item} -> {inner(item, parts[0][1])})"
        case "map":
            key, held = (inner(f"{item}.{side}", part) for side, (_, part) in zip(("key", "value"), parts, strict=True))
            made = f"transform({entries.format(value)}, {item} -> named_struct('key', {key}, 'value', {held}))"
            return from_entries.format(made)
        case "struct":
            fields = (f"{literal(name)}, {inner(f'{value}.{identifier(name)}', part)}" for name, part in parts)
            return f"if({value} IS NULL, NULL, named_struct({', '.join(fields)}))"
        case _:
            return leaf(value, type_)
