"""Which values fit a column: SQL that gives a value as the column's type, or NULL where it cannot be that unchanged.

DuckDB's own casts are too lenient: '1.5' becomes the integer 2, '1e400' an infinite number, '2024-01-01 10:00' a date
without its hours, and a struct loses the keys that its type does not name, all without an error. So a text must look like a
value of the type before it is cast, and what is cast is written back: a value fits if the text that its type gives is the
same value. '02134' and '+4919' are no numbers (postal codes, telephone numbers), and '12345678901234567.89' is no double.
"""

import json
import re
from collections.abc import Callable, Iterable

from ratify_lakehouse.column_types import SqlType
from ratify_lakehouse.sql.duckdb_sql import identifier, literal
from ratify_lakehouse.sql.number_texts import NOT_FINITE, NUMBER, PLAIN_NUMBER, SAFE_DIGITS, WHOLE, digits_of

# No double has more digits.
_MOST_DIGITS = 800
_EVERY = ", 'g'"
_DATE = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
_ZONE = " ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"


def from_text(text: str, wanted: SqlType) -> str:
    """Return SQL that gives a text as the wanted type; nested types are taken from JSON, binary from Base64.

    Args:
        text: SQL of type VARCHAR.
        wanted: Type of the column. A timestamp without a zone is UTC.
    """
    if wanted.parts:
        return from_json(f"TRY_CAST({text} AS JSON)", wanted)
    cast = f"TRY_CAST({text} AS {wanted.name})"
    match wanted.name:
        case "VARCHAR":
            return text
        case "BLOB":
            return f"TRY(from_base64({text}))"
        case "FLOAT" | "DOUBLE":
            short = f"length({text}) <= {SAFE_DIGITS[wanted.name]} AND {_looks(text, PLAIN_NUMBER)}"
            exact = f"{_looks(text, NUMBER)} AND {_comes_back(text, cast)}"
            return f"CASE WHEN {short} OR ({exact}) OR {_looks(text, NOT_FINITE)} THEN {cast} END"
        case "TIMESTAMP WITH TIME ZONE":
            # Two casts: the one to a type with a zone assumes the session's zone for a text without one, and the one
            # to a type without a zone drops the offset of the text.
            local = f"TRY_CAST({text} AS TIMESTAMP) AT TIME ZONE 'UTC'"
            plain = _looks(text, f"{_DATE}([ T]{_TIME})?")
            return f"CASE WHEN {plain} THEN {local} WHEN {_looks(text, f'{_DATE}[ T]{_TIME}{_ZONE}')} THEN {cast} END"
    return f"CASE WHEN {_looks(text, _pattern(wanted.name))} THEN {cast} END"


def plain_number(text: str, decimal: str, thousands: str) -> str:
    """Return SQL of a number's text with `.` before its fraction and nothing between its digits; NULL where it is none.

    Args:
        text: SQL of the text.
        decimal: Character before the fraction.
        thousands: Character between groups of three digits, all of them or none; empty: there is none.
    """
    before, between = re.escape(decimal), re.escape(thousands)
    grouped = f"[0-9]{{1,3}}({between}[0-9]{{3}})+|" if thousands else ""
    pattern = f"[+-]?({grouped}[0-9]*)({before}[0-9]*)?([eE][+-]?[0-9]+)?|{NOT_FINITE}"
    digits = f"replace({text}, {literal(thousands)}, '')" if thousands else text
    return f"CASE WHEN {_looks(text, pattern)} THEN replace({digits}, {literal(decimal)}, '.') END"


def _pattern(name: str) -> str:
    if decimal := re.match(r"DECIMAL\(\d+,(\d+)\)", name):
        scale = int(decimal.group(1))
        some = rf"(\.[0-9]{{0,{scale}}}0*)?"
        return rf"{WHOLE}{some}|-?\.[0-9]{{1,{scale}}}0*" if scale else rf"{WHOLE}(\.0*)?"
    return {"BOOLEAN": "(?i)true|false", "DATE": _DATE}.get(name, WHOLE)


def _comes_back(text: str, cast: str) -> str:
    """SQL of whether a floating-point number, written with as many digits as the text has, has the same digits."""
    digits = digits_of(text, _EVERY)
    printed = f"printf('%.*e', CAST(greatest(length({digits}), 1) - 1 AS INTEGER), CAST({cast} AS DOUBLE))"
    written = digits_of(printed, _EVERY)
    return f"CASE WHEN isfinite({cast}) AND length({digits}) <= {_MOST_DIGITS} THEN {digits} = {written} ELSE false END"


def from_json(value: str, wanted: SqlType, depth: int = 0) -> str:
    """Return SQL that gives a JSON value as the wanted type: a struct may lack keys, but it may not have others.

    Args:
        value: SQL of type JSON.
        wanted: Type of the column; text takes any JSON value, as its JSON unless it is a string.
        depth: How many lambdas surround the SQL.
    """
    match wanted.name:
        case "LIST":
            items = f"from_json({value}, '[\"JSON\"]')"
            fitted, all_fit = _each(items, lambda item: from_json(item, wanted.parts[0][1], depth + 1), depth)
            return f"CASE WHEN json_type({value}) = 'ARRAY' AND {all_fit} THEN {fitted} END"
        case "MAP":
            (_, key), (_, part) = wanted.parts
            # Duplicate keys make the cast fail.
            entries = f"CASE WHEN {unique_keys(value)} THEN CAST({value} AS MAP(VARCHAR, JSON)) END"
            keys, all_keys = _each(f"map_keys({entries})", lambda name: from_text(name, key), depth)
            values, all_values = _each(f"map_values({entries})", lambda item: from_json(item, part, depth + 1), depth)
            fit = (
                f"json_type({value}) = 'OBJECT' AND {all_keys} AND {all_values} AND len({keys}) = len(list_distinct({keys}))"
            )
            return f"CASE WHEN {fit} THEN map({keys}, {values}) END"
        case "STRUCT":
            names = [name for name, _ in wanted.parts]
            known = ", ".join(literal(name) for name in names)
            others = f"len(list_filter(json_keys({value}), lambda k{depth}: k{depth} NOT IN ({known})))"
            tests = [f"json_type({value}) = 'OBJECT'", unique_keys(value), f"{others} = 0"]
            packed = list[str]()
            for name, part in wanted.parts:
                inner = f"({opened(value, names)}).{identifier(name)}"
                fitted = from_json(inner, part, depth + 1)
                tests.append(f"({inner} IS NULL OR {fitted} IS NOT NULL)")
                packed.append(f"{identifier(name)} := {fitted}")
            return f"CASE WHEN {' AND '.join(tests)} THEN struct_pack({', '.join(packed)}) END"
    return from_text(f"({value} ->> '$')", wanted)


def from_number(value: str, type_sql: str, wanted: SqlType) -> str:
    """Return SQL that gives a number as another type of number, if it converts back unchanged.

    Args:
        value: SQL of a numeric type.
        type_sql: That type, in DuckDB's SQL.
        wanted: Type of the column.
    """
    cast = f"TRY_CAST({value} AS {wanted.name})"
    return f"CASE WHEN TRY_CAST({cast} AS {type_sql}) = {value} THEN {cast} END"


def opened(value: str, keys: Iterable[str]) -> str:
    """Return SQL of a struct with these keys of a JSON object, each with its JSON value, NULL for null."""
    return f"from_json({value}, {literal(json.dumps(dict.fromkeys(keys, 'JSON')))})"


def unique_keys(value: str) -> str:
    """Return SQL that is true if a JSON object has no key twice."""
    return f"len(json_keys({value})) = len(list_distinct(json_keys({value})))"


def _looks(text: str, pattern: str) -> str:
    spaced = rf"\s*({pattern})\s*"
    return f"regexp_full_match({text}, {literal(spaced)})"


def _each(items: str, fit: Callable[[str], str], depth: int) -> tuple[str, str]:
    """SQL of a list's items as another type, and of whether all of them fit it."""
    at = f"x{depth}"
    misfits = f"list_filter({items}, lambda {at}: {at} IS NOT NULL AND {fit(at)} IS NULL)"
    return f"list_transform({items}, lambda {at}: {fit(at)})", f"len({misfits}) = 0"
