"""Values that a cast would change: SQL that finds them among the rows of a sync.

A value stays if the text that the destination's type gives back is the same value, as where files land
(`ratify_lakehouse.ingest.formats.fitting_values`).
"""

from ratify_lakehouse.column_types import DECIMAL, sql_type
from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.sql.number_texts import NOT_FINITE, NUMBER, SAFE_DIGITS, WHOLE, digits_of

WHOLE_TYPES = frozenset(["tinyint", "smallint", "int", "bigint"])
FLOATING = {"float": ("1e-37", "1e38"), "double": ("1e-300", "1e300")}
_NUMERIC = {*WHOLE_TYPES, *FLOATING, "boolean"}
_DATE = "[0-9]+-[0-9]+-[0-9]+([ T].*)?"


def loses(sql: RuleDialect, source: str, source_type: str, value: str, type_text: str) -> str:
    """Return SQL of whether a value is another one as the destination's type; empty where it never is.

    Args:
        sql: The engine's words.
        source: SQL of the value as the source has it, which is not NULL.
        source_type: Its type, in Spark SQL's words.
        value: SQL of the cast value, which is not NULL.
        type_text: The destination's type, in Spark SQL's words.
    """
    if source_type == "string":
        same = _same_text(sql, source, value, type_text)
        return f"NOT coalesce({same}, false)" if same else ""
    if type_text == "float" and _is_number(source_type):
        return f"{_digits(sql, value)} IS DISTINCT FROM {_digits(sql, source)}"
    numbers = _is_number(source_type) and _is_number(type_text)
    if numbers or (source_type == "timestamp" and type_text in {"date", *WHOLE_TYPES}):
        return f"try_cast({value} AS {sql_name(sql, source_type)}) IS DISTINCT FROM {source}"
    return ""


def sql_name(sql: RuleDialect, type_text: str) -> str:
    """Return an engine's name of a type that is given in Spark SQL's words."""
    found = sql_type(type_text)
    return found.spark if sql.excluding == "EXCEPT" else found.sql


def _same_text(sql: RuleDialect, text: str, value: str, type_text: str) -> str:
    """SQL of whether a text and what it is cast to are the same value; empty where they always are."""
    if type_text in WHOLE_TYPES:
        return _looks(sql, text, WHOLE)
    if type_text in FLOATING:
        least, most = FLOATING[type_text]
        digits = digits_of(text, sql.every)
        safe = f"length({digits}) <= {SAFE_DIGITS[type_text.upper()]} AND abs({value}) BETWEEN {least} AND {most}"
        same = f"{_looks(sql, text, NUMBER)} AND ({digits} = {_digits(sql, value)} OR ({safe}))"
        return f"{_looks(sql, text, NOT_FINITE)} OR ({same})"
    if DECIMAL.match(type_text):
        return f"{_looks(sql, text, NUMBER)} AND {digits_of(text, sql.every)} = {_digits(sql, value)}"
    if type_text == "date":
        moment, day = (f"try_cast({each} AS {sql_name(sql, 'timestamp')})" for each in (text, value))
        return f"{_looks(sql, text, _DATE)} AND {moment} = {day}"
    return ""


def _is_number(type_text: str) -> bool:
    return type_text in _NUMERIC or DECIMAL.match(type_text) is not None


def _digits(sql: RuleDialect, value: str) -> str:
    return digits_of(f"CAST({value} AS {sql_name(sql, 'string')})", sql.every)


def _looks(sql: RuleDialect, text: str, pattern: str) -> str:
    return sql.looks.format(text, sql.literal(rf"^\s*({pattern})\s*$"))
