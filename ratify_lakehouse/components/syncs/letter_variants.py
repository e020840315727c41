"""The VARIANT of a dead letter as JSON: a tree with the type of each value, for JSON has one word for several of them.

`parse_json` makes a decimal of a double and a text of a date. So each value is `{"ratify_type": …, "text": …}`, and each
object or array `{"ratify_type": …, "parts": [{"key": …, "value": …}]}`, down to a number of levels.
"""

from collections.abc import Callable

from ratify_lakehouse.sql.spark_sql import literal

LEVELS = 10
"""How many objects and arrays may be within each other."""

_TYPE, _UNHELD = "ratify_type", "NOT HELD"
_MARK = f'{{"{_TYPE}":'
# By their names in `schema_of_variant`. JSON has these: the others are cast from their texts.
_OF_JSON = ("VOID", "BOOLEAN", "BIGINT")
_CAST = ("FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_PLAIN = (*_OF_JSON, *_CAST, "DECIMAL", "STRING", "BINARY")

Sql = Callable[[str], str]


def unheld(letter: str) -> str:
    """Return SQL of whether a letter lacks the value of a VARIANT: it has too many levels, or a type that is not known.

    `letter`: SQL of its JSON text.
    """
    found = literal(f'"{_TYPE}":"{_UNHELD}"')
    return f"instr({letter}, {found}) > 0"


def variant_held(value: str, text_held: Sql) -> str:
    """Return SQL of what stands for a VARIANT in the JSON of a letter.

    Args:
        value: SQL of the value.
        text_held: Returns SQL of what stands for a text there.
    """
    return f"if({value} IS NULL, NULL, {_tree(value, text_held, LEVELS)})"


def variant_given_back(held: str, text_given_back: Sql) -> str:
    """Return SQL of the VARIANT that the JSON text of its tree stands for; older letters have no tree, but the text of one.

    Args:
        held: SQL of the JSON text.
        text_given_back: Returns SQL of the text that something stands for.
    """
    tree = f"from_json({held}, {literal(_schema(LEVELS))}, map('mode', 'FAILFAST'))"
    given = f"transform(array({tree}), ratify_tree -> {_value('ratify_tree', text_given_back, LEVELS)})[0]"
    return f"if(startswith({held}, {literal(_MARK)}), {given}, CAST({held} AS VARIANT))"


def _schema(levels: int) -> str:
    """The type of a tree as `from_json` has it."""
    parts = f", parts: array<struct<key: string, value: {_schema(levels - 1)}>>" if levels else ""
    return f"struct<{_TYPE}: string, text: string{parts}>"


def _tree(value: str, text_held: Sql, levels: int) -> str:
    item = f"ratify_level_{levels}"
    type_ = f"regexp_extract(schema_of_variant({value}), '^[A-Z_]+', 0)"
    # One list for both, so that what is in it stands here once: twice at each level would be a thousand times.
    parts = (
        f"coalesce(map_entries(try_variant_get({value}, '$', 'map<string,variant>')), "
        f"transform(try_variant_get({value}, '$', 'array<variant>'), {item} -> named_struct('key', '', 'value', {item})))"
    )
    known = f"{type_} IN ({', '.join(map(literal, (*_PLAIN, 'OBJECT', 'ARRAY')))})"
    if not levels:
        known += f" AND coalesce(size({parts}), 0) <= 0"
    plain = text_held(f"CAST({value} AS STRING)")
    text = (
        f"CASE {type_} WHEN 'OBJECT' THEN NULL WHEN 'ARRAY' THEN NULL "
        f"WHEN 'BINARY' THEN base64(try_variant_get({value}, '$', 'binary')) ELSE {plain} END"
    )
    fields = f"'{_TYPE}', if({known}, {type_}, {literal(_UNHELD)}), 'text', {text}"
    if levels:
        below = _tree(f"{item}.value", text_held, levels - 1)
        of_part = f"named_struct('key', {text_held(f'{item}.key')}, 'value', {below})"
        fields += f", 'parts', transform({parts}, {item} -> {of_part})"
    return f"named_struct({fields})"


def _value(tree: str, text_given_back: Sql, levels: int) -> str:
    item, type_ = f"ratify_level_{levels}", f"{tree}.{_TYPE}"
    text = f"{tree}.text"
    plain = (
        f"CASE WHEN {type_} = 'STRING' THEN CAST({text_given_back(text)} AS VARIANT) "
        f"WHEN {type_} = 'BINARY' THEN CAST(unbase64({text}) AS VARIANT) "
        # JSON has a fraction as a decimal, but a whole number as a BIGINT.
        f"WHEN {type_} = 'DECIMAL' AND NOT contains({text}, '.') THEN CAST(CAST({text} AS DECIMAL(38, 0)) AS VARIANT) "
        + " ".join(f"WHEN {type_} = '{name}' THEN CAST(CAST({text} AS {name}) AS VARIANT)" for name in _CAST)
        + f" WHEN {type_} = 'VOID' THEN parse_json('null') ELSE parse_json({text}) END"
    )
    if not levels:
        parts, key, below = "array()", "''", "CAST(NULL AS VARIANT)"
    else:
        parts, key = f"{tree}.parts", text_given_back(f"{item}.key")
        below = _value(f"{item}.value", text_given_back, levels - 1)
    made = f"transform({parts}, {item} -> named_struct('key', {key}, 'value', {below}))"
    # As in `_tree`: once.
    of_parts = (
        f"transform(array({made}), {item} -> if({type_} = 'OBJECT', "
        f"to_variant_object(map_from_entries({item})), to_variant_object({item}.value)))[0]"
    )
    return f"CASE WHEN {type_} IN ('OBJECT', 'ARRAY') THEN {of_parts} ELSE {plain} END"
