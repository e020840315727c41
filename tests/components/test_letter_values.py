"""Dead letters give back the values that their rows had: of every type, and of random types that are made of these."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pytest

from ratify_lakehouse.column_types import TYPES
from ratify_lakehouse.components.syncs.letter_values import letter_sql, row_sql
from ratify_lakehouse.components.syncs.letter_variants import LEVELS, unheld
from ratify_lakehouse.sql.spark_sql import identifier
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack

_NO_UTF8 = (
    *("X'FF'", "X'C328FF'", "X'EDA080'", "X'EDB080'", "X'C080'", "X'F4908080'", "X'61E282'"),
    *(f"X'{random.Random(seed).randbytes(seed).hex()}'" for seed in range(3, 9)),  # noqa: S311 values, not keys
)
_TEXTS = (
    *("''", "' a '", "'null'", "'12.50'", "'{\"a\": 1}'", "'it\\'s \\\\ \\n ä名'", "'{x}'", "decode(X'F09F9880', 'UTF-8')"),
    *("'\\u0000'", "'\\u0001\\u001F\\u007F\\u0085\\u2028\\u2029\\uFEFF\\uFFFD\\uFFFF'", "'\\u0000ratify base64:'"),
    *("'\\u0000ratify base64:YQ=='", "'{\"ratify_type\":'", *(f"CAST({each} AS STRING)" for each in _NO_UTF8)),
)
VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "tinyint": ("-128Y", "0Y"),
    "smallint": ("-32768S",),
    "int": ("2147483647", "0"),
    "bigint": ("9223372036854775807L", "9007199254740993L"),
    "float": (
        *("0.1F", "16777217.5F", "1.4E-45F", "CAST(3.4028234663852886E38D AS FLOAT)"),
        *("CAST('NaN' AS FLOAT)", "CAST('-Infinity' AS FLOAT)", "CAST('-0.0' AS FLOAT)"),
    ),
    "double": ("0.1D", "4.9E-324D", "1.7976931348623157E308D", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"),
    "string": _TEXTS,
    "binary": ("X''", "X'00FF80'"),
    "date": ("DATE'0001-01-01'", "DATE'1582-10-04'", "DATE'9999-12-31'", "DATE'+12345-01-01'"),
    "timestamp": (
        *("TIMESTAMP'2026-01-01 00:00:00.123456Z'", "TIMESTAMP'2026-01-01 00:00:00.000001Z'"),
        *(
            "TIMESTAMP'1582-10-04 23:59:59.999999Z'",
            "TIMESTAMP'0001-01-01 00:00:00Z'",
            "TIMESTAMP'+12345-01-01 00:00:00.1Z'",
        ),
    ),
    "decimal(38,18)": ("12345678901234567890.123456789012345678BD", "-0.000000000000000001BD"),
    "decimal(5,2)": ("1.50BD", "-999.99BD"),
    # No table of ours has these, but the query of a sync may.
    "string collate UTF8_LCASE": ("'Straße'", "CAST(X'41FF' AS STRING)", "'\\u0000RATIFY base64:'"),
    "interval year to month": ("INTERVAL '-178956970-8' YEAR TO MONTH",),
    "interval hour to minute": ("INTERVAL '-1:02' HOUR TO MINUTE",),
    "interval": ("make_interval(-1, 2, 3, -4, 5, 6, -7.123456)", "make_interval(0, 0, 0, 0, 0, 0, 0.000001)"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",),
    "interval day to second": ("INTERVAL '1 02:03:04.567891' DAY TO SECOND",),
}
_KEYS = [type_ for type_ in VALUES if type_ not in {"float", "double", "interval"} and "collate" not in type_]

VARIANTS = (
    *("'null'", "'true'", "'1'", "'-9223372036854775808'", "'1.50'", "'1e2'", "'1.0'", "'{}'", "'[]'", "'\"\"'", "'\"1\"'"),
    *("'12345678901234567890123456789012345678'", "'0.00000000000000000000000000000000000001'", "'\"2026-01-01\"'"),
    *('\'{"a": [1, "x", null, 1.5, 1e2], "": {"ä": {}}, "ratify_type": "DATE"}\'', "'[1.0, 1.5, 2, 1e40]'"),
    "'" + "[" * LEVELS + "]" * LEVELS + "'",
    "'" + '{"a": ' * LEVELS + "1" + "}" * LEVELS + "'",
)
_TYPED = [
    f"CAST({value} AS {type_})" for type_ in VALUES for value in VALUES[type_] if " " not in type_ and type_ != "interval"
]
_NESTED = (
    *("array(1.5D, 1.0D, NULL)", "named_struct('a', DATE'2026-01-01', 'b', array(X'00FF', NULL), 'c', 0.1F)"),
    "array(map('a', TIMESTAMP'2026-01-01 00:00:00.000001Z'), map('b', NULL), map())",
    "array(parse_json('\"x\"'), CAST(DATE'2026-01-01' AS VARIANT), CAST(1.5D AS VARIANT), CAST(1.5BD AS VARIANT))",
    "named_struct('a', CAST(X'FF' AS STRING))",
)
Sql = Callable[[str], str]


@dataclass(frozen=True)
class TypedValue:
    """A type, SQL of a value of it, and what gives SQL of a value as a text without loss."""

    type: str
    value: str
    shown: Sql


def _plain(type_: str) -> Sql:
    """Of a value without parts: its bytes, or its own text."""
    as_bytes = type_ == "binary" or type_.startswith("string")
    return lambda at: f"hex({at})" if as_bytes else f"CAST({at} AS STRING)"


def made(chance: random.Random, depth: int = 2, types: list[str] | None = None) -> TypedValue:
    """A random value, seldom NULL."""
    kind = chance.choice(("array", "map", "struct")) if depth and chance.random() < 0.5 and types is None else ""
    name = f"x{depth}"
    match kind:
        case "array":
            item = made(chance, depth - 1)
            text = f"array({chance.choice((item.value, f'{item.value}, NULL', ''))})"
            found = TypedValue(f"array<{item.type}>", text, lambda at: f"transform({at}, {name} -> {item.shown(name)})")
        case "map":
            key, item = made(chance, types=_KEYS), made(chance, depth - 1)
            pair = f"named_struct('k', {key.shown(f'{name}.key')}, 'v', {item.shown(f'{name}.value')})"
            text = f"map({chance.choice((f'{key.value}, {item.value}', ''))})"
            found = TypedValue(
                f"map<{key.type},{item.type}>", text, lambda at: f"transform(map_entries({at}), {name} -> {pair})"
            )
        case "struct":
            parts = {name: made(chance, depth - 1) for name in ("a", "the Amount", "key")}
            fields = ", ".join(f"'{name}', {part.value}" for name, part in parts.items())
            listed = ",".join(f"{name}:{part.type}" for name, part in parts.items())

            def shown(at: str) -> str:
                each = (f"'{name}', {part.shown(f'{at}.{identifier(name)}')}" for name, part in parts.items())
                return f"if({at} IS NULL, NULL, named_struct({', '.join(each)}))"

            found = TypedValue(f"struct<{listed}>", f"named_struct({fields})", shown)
        case _:
            # Spark itself loses the collation of an array's texts in a struct: such a text is a column here.
            type_ = chance.choice(types or [type_ for type_ in VALUES if "collate" not in type_])
            found = TypedValue(type_, f"CAST({chance.choice(VALUES[type_])} AS {type_})", _plain(type_))
    quoted = found.type.replace("the Amount", "`the Amount`")
    nothing = types is None and chance.random() < 0.1
    return TypedValue(found.type, f"CAST({'NULL' if nothing else found.value} AS {quoted})", found.shown)


def replayed(types: dict[str, str], rows: str) -> str:
    """A query for rows as dead letters give them back, in their order."""
    struct, given_back = row_sql(types, "letter", "r")
    return f"SELECT {given_back} FROM (SELECT {struct} AS r FROM (SELECT {letter_sql(types)} AS letter FROM ({rows})))"


def differing(lake: Lakehouse, columns: dict[str, TypedValue]) -> dict[str, tuple[str, str]]:
    """Columns whose values a letter does not give back, and these values as text, before and after."""
    listed = ", ".join(f"{each.value} AS {identifier(name)}" for name, each in columns.items())
    types = {name: each.type for name, each in columns.items()}
    rows = {"before": f"SELECT {listed}", "after": replayed(types, f"SELECT {listed}")}
    for query in rows.values():
        assert {name: found for name, found in lake.spark.types(query).items() if found != types[name]} == {}
    shown = ", ".join(
        f"to_json(struct({each.shown(identifier(name))})) AS {identifier(name)}" for name, each in columns.items()
    )
    before, after = (lake.run(f"SELECT {shown} FROM ({each})")[0] for each in rows.values())
    return {name: (before[name], after[name]) for name in columns if before[name] != after[name]}


def test_every_type_has_values() -> None:
    assert {plain.spark for plain in TYPES} <= set(VALUES)


def test_a_letter_gives_the_values_back(lake: Lakehouse) -> None:
    chance = random.Random("values")  # noqa: S311 values, not keys
    plain = [
        TypedValue(type_, f"CAST({value} AS {type_})", _plain(type_)) for type_, values in VALUES.items() for value in values
    ]
    nested = [made(chance) for _ in range(40)]
    columns = {f"c {number} {{}}": each for number, each in enumerate([*plain, *nested])}
    assert differing(lake, columns) == {}


def _same_scale(value: Any) -> Any:
    """No SQL tells 1.50 from 1.5 in a VARIANT."""
    match value:
        case Decimal():
            return value.normalize()
        case list():
            return [_same_scale(each) for each in cast("list[Any]", value)]
        case dict():
            return {name: _same_scale(each) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def test_a_letter_gives_every_variant_back(lake: Lakehouse) -> None:
    """Its types are those of its parts, which JSON has not."""
    values = [f"parse_json({text})" for text in VARIANTS]
    values += [f"CAST({each} AS VARIANT)" for each in _TYPED] + [f"to_variant_object({each})" for each in _NESTED]
    types = {"n": "int", "list": "array<struct<v:variant>>"}
    rows = (
        "SELECT n, array(named_struct('v', v), NULL) AS list "
        f"FROM (SELECT posexplode(array({', '.join([*values, 'CAST(NULL AS VARIANT)'])})) AS (n, v))"
    )
    text = "CAST(v AS STRING)"
    # The client reads no text that is not UTF-8, and no year that Python has not.
    shown = (
        f"n, lacks, schema_of_variant(v) AS type, hex({text}) AS text, hex(try_variant_get(v, '$.a', 'string')) AS a, "
        f"if(is_valid_utf8({text}) AND NOT contains({text}, '12345-'), v, NULL) AS v"
    )
    before, after = (
        [
            repr({**row, "v": _same_scale(row["v"] and row["v"].toPython())})
            for row in lake.run(
                f"SELECT {shown} FROM (SELECT n, list[1] AS lacks, list[0].v AS v FROM ({query})) ORDER BY n"
            )
        ]
        for query in (rows, replayed(types, rows))
    )
    assert len(before) == len(values) + 1
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == []


def test_a_letter_says_which_variant_it_lacks(lake: Lakehouse) -> None:
    """Of an object or array that has too many of them within each other; not of a text that looks as if."""
    deep = ["[" * LEVELS + "[1]" + "]" * LEVELS, '{"a": ' * (LEVELS + 1) + "1" + "}" * (LEVELS + 1)]
    held = ["[" * LEVELS + "[]" + "]" * LEVELS, '{"a": "\\\\"ratify_type\\\\":\\\\"NOT HELD\\\\""}']
    listed = ", ".join(f"parse_json('{text}')" for text in (*deep, *held))
    rows = f"SELECT n, array(v) AS v FROM (SELECT posexplode(array({listed}, CAST(NULL AS VARIANT))) AS (n, v))"
    letters = f"SELECT n, {letter_sql({'v': 'array<variant>'})} AS letter FROM ({rows})"
    found = lake.run(f"SELECT {unheld('letter')} AS lacks FROM ({letters}) ORDER BY n")
    assert [row["lacks"] for row in found] == [True, True, False, False, False]


def test_a_letter_of_before_is_read_as_it_was(lake: Lakehouse) -> None:
    """Its texts have no marks, and its VARIANT is a text."""
    types = {"a": "string", "b": "array<string>", "v": "variant", "m": "map<string,int>"}
    letter = '{"a":"x y","b":["","ä"],"v":"{\\\\"a\\\\":1}","m":[{"key":"k","value":1}]}'
    struct, given_back = row_sql(types, f"'{letter}'", "r")
    (row,) = lake.run(f"SELECT a, b, CAST(v AS STRING) AS v, m FROM (SELECT {given_back} FROM (SELECT {struct} AS r))")
    assert row == {"a": "x y", "b": ["", "ä"], "v": '{"a":1}', "m": {"k": 1}}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_values_come_back(lake: Lakehouse, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 values, not keys
    assert differing(lake, {f"c{number}": made(chance, 3) for number in range(60)}) == {}
