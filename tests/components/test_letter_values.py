"""Dead letters give back the values that their rows had: of every type, and of random types that are made of these."""

import random
from dataclasses import dataclass

import pytest

from components.syncs.letter_values import as_texts, letter_sql, row_sql
from resources.column_types import TYPES
from resources.sql.spark_sql import identifier
from tests.resources.lakehouse import Lakehouse

pytestmark = pytest.mark.stack

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
    "string": ("''", "' a '", "'null'", "'12.50'", "'{\"a\": 1}'", "'it\\'s \\\\ \\n \\u2028 \\u0001 ä名'", "'{x}'"),
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
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",),
    "interval day to second": ("INTERVAL '1 02:03:04.567891' DAY TO SECOND",),
}
_KEYS = [type_ for type_ in VALUES if type_ not in {"float", "double"}]


@dataclass(frozen=True)
class TypedValue:
    """A type, and SQL of a value of it."""

    type: str
    value: str


def made(chance: random.Random, depth: int = 2, types: list[str] | None = None) -> TypedValue:
    """A random value, seldom NULL."""
    kind = chance.choice(("array", "map", "struct")) if depth and chance.random() < 0.5 and types is None else ""
    match kind:
        case "array":
            item = made(chance, depth - 1)
            text = f"array({chance.choice((item.value, f'{item.value}, NULL', ''))})"
            found = TypedValue(f"array<{item.type}>", text)
        case "map":
            key, item = made(chance, types=_KEYS), made(chance, depth - 1)
            found = TypedValue(f"map<{key.type},{item.type}>", f"map({chance.choice((f'{key.value}, {item.value}', ''))})")
        case "struct":
            parts = {name: made(chance, depth - 1) for name in ("a", "the Amount", "key")}
            fields = ", ".join(f"'{name}', {part.value}" for name, part in parts.items())
            listed = ",".join(f"{name}:{part.type}" for name, part in parts.items())
            found = TypedValue(f"struct<{listed}>", f"named_struct({fields})")
        case _:
            type_ = chance.choice(types or list(VALUES))
            found = TypedValue(type_, f"CAST({chance.choice(VALUES[type_])} AS {type_})")
    quoted = found.type.replace("the Amount", "`the Amount`")
    nothing = types is None and chance.random() < 0.1
    return TypedValue(found.type, f"CAST({'NULL' if nothing else found.value} AS {quoted})")


def differing(lake: Lakehouse, columns: dict[str, TypedValue]) -> dict[str, tuple[str, str]]:
    """Columns whose values a letter does not give back, and these values as text, before and after."""
    listed = ", ".join(f"{each.value} AS {identifier(name)}" for name, each in columns.items())
    types = lake.spark.types(f"SELECT {listed}")
    assert types == {name: each.type for name, each in columns.items()}
    struct, given_back = row_sql(types, "letter", "r")
    read = f"SELECT {struct} AS r FROM (SELECT {letter_sql(types)} AS letter FROM (SELECT {listed}))"
    assert lake.spark.types(f"SELECT {given_back} FROM ({read})") == types
    # A text in which maps, bytes and fractions of seconds are as they are.
    shown = ", ".join(
        f"to_json(struct({_plain(name, type_)}), map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')) AS {identifier(name)}"
        for name, type_ in types.items()
    )
    before, after = (
        lake.run(f"SELECT {shown} FROM ({rows})")[0] for rows in (f"SELECT {listed}", f"SELECT {given_back} FROM ({read})")
    )
    return {name: (before[name], after[name]) for name in columns if before[name] != after[name]}


def _plain(name: str, type_: str) -> str:
    return f"CAST({identifier(name)} AS STRING)" if type_.startswith("interval") else identifier(name)


def test_every_type_has_values() -> None:
    assert {plain.spark for plain in TYPES} <= set(VALUES)


def test_a_letter_gives_the_values_back(lake: Lakehouse) -> None:
    chance = random.Random("values")  # noqa: S311 values, not keys
    plain = [TypedValue(type_, f"CAST({value} AS {type_})") for type_, values in VALUES.items() for value in values]
    nested = [made(chance) for _ in range(40)]
    columns = {f"c {number} {{}}": each for number, each in enumerate([*plain, *nested])}
    assert differing(lake, columns) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_values_come_back(lake: Lakehouse, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 values, not keys
    assert differing(lake, {f"c{number}": made(chance, 3) for number in range(60)}) == {}


def test_a_letter_without_types_is_read_as_texts() -> None:
    types = {"a": "int", "b": "binary", "c": "array<double>", "d": "string", "e": "timestamp"}
    assert as_texts(types) == {"a": "string", "b": "binary", "c": "array<double>", "d": "string", "e": "string"}
