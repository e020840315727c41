"""Conditions on keys: by ranges, which Spark compares with the statistics of files, and by their hashes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.sql.spark_sql import identifier, literal

_FEW_KEYS = 1_000
LISTED = 50
"""So many values of a column are listed one by one; of more only the least and the greatest are given."""

MOST_HASHES = 10_000
"""The hashes of so many keys are looked up in a table."""
_LEAST_SLOTS, _SLOTS_OF_A_KEY = 1_024, 16
"""Of that table, which is one literal: about one in so many of all other keys is in it, too."""

_ORDERED = {"boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "string"}
"""Types of which a text has the exact value, and statistics the order."""

_BOUNDS = {"least": "min", "greatest": "max"}


@dataclass(frozen=True)
class KeyRanges:
    """What is known of a number of keys.

    Attributes:
        number: How many.
        conditions: For each column of which something is known, a condition on a relation that all of these keys fulfil.
        readable: Whether the text of each is UTF-8, so that JSON has it as it is.
        hashed: The hash of a key of a relation, in SQL; empty where the type of a column has none.
        hashes: Those of all keys; none where there are too many.
    """

    number: int
    conditions: tuple[Callable[[str], str], ...]
    readable: bool = True
    hashed: Callable[[str], str] = lambda _: ""
    hashes: Sequence[int] = ()

    @staticmethod
    def query(types: Mapping[str, str], view: str, more: Sequence[str] = ()) -> str:
        """Return the query for `of`: over a view that has a row for each of the keys.

        Args:
            types: Their columns, and the types of these in Spark SQL's words.
            view: Its name.
            more: Further columns of the row.
        """
        ordered = [identifier(key) for key in ordered_keys(types)]
        sets = ", ".join(f"collect_set({_text(key)}) AS {key}" for key in ordered)
        found = ["count(*) AS number"]
        for number, key in enumerate(ordered):
            found += [f"{_text(f'{name}({key})')} AS {what}_{number}" for what, name in _BOUNDS.items()]
            found += [f"count_if({key} IS NULL) > 0 AS nulls_{number}"]
            found += [f"count_if(NOT is_valid_utf8(CAST({key} AS STRING))) > 0 AS unreadable_{number}"]
        if sets:
            # Of no more rows than that: the values of very many keys would not fit into one row.
            found.append(f"(SELECT struct({sets}) FROM (SELECT * FROM {view} LIMIT {_FEW_KEYS})) AS few")
        if hashed := _hashed(types, "v"):
            some = f"SELECT * FROM {view} LIMIT {MOST_HASHES + 1}"
            found.append(f"(SELECT collect_list({hashed}) FROM ({some}) AS v) AS hashes")
        return f"SELECT {', '.join([*found, *more])} FROM {view}"

    @classmethod
    def of(cls, found: Mapping[str, Any], types: Mapping[str, str]) -> "KeyRanges":
        """Return what is known, given the row of `query`."""
        conditions = list[Callable[[str], str]]()
        for number, key in enumerate(ordered_keys(types)):
            if found[f"unreadable_{number}"]:
                # A literal cannot have the bytes of such a key.
                continue
            few: list[str] = found["few"][key] if found["number"] <= _FEW_KEYS else []
            least, greatest, nulls = (found[f"{what}_{number}"] for what in ("least", "greatest", "nulls"))
            if 0 < len(few) <= LISTED:
                of_values = f"IN ({', '.join(_written(value, types[key]) for value in sorted(few))})"
            elif least is not None:
                of_values = f"BETWEEN {_written(least, types[key])} AND {_written(greatest, types[key])}"
            else:
                of_values = ""
            conditions.append(key_condition(identifier(key), of_values, nulls=nulls))
        readable = not any(found[f"unreadable_{number}"] for number in range(len(ordered_keys(types))))
        hashes = found.get("hashes", ()) if found["number"] <= MOST_HASHES else ()
        return cls(found["number"], tuple(conditions), readable, lambda relation: _hashed(types, relation), hashes)

    def within(self, relation: str) -> str:
        """Return a condition on a relation that all of these keys fulfil."""
        return " AND ".join(condition(relation) for condition in self.conditions) or "true"

    def among(self, relation: str) -> str:
        """Return one that leaves out nearly every other key, for a relation that computes its keys.

        It leaves out no files, whose statistics know nothing of hashes. Spark evaluates it before the relation's other
        columns, and those for these keys alone. By a join it would compute every row first.
        """
        if not self.hashes:
            return self.within(relation)
        slots = bytearray(max(_LEAST_SLOTS, _SLOTS_OF_A_KEY * len(self.hashes)))
        for each in self.hashes:
            slots[each % len(slots)] = 1
        # A list of the hashes would be thousands of expressions: each rule of Spark visits them, and each task gets them.
        slot = f"CAST(pmod({self.hashed(relation)}, {len(slots)}) AS INT) + 1"
        # First: of the two, it leaves out more.
        return f"substring(X'{slots.hex()}', {slot}, 1) = X'01' AND {self.within(relation)}"


NO_KEYS = KeyRanges(0, ())


def ordered_keys(types: Mapping[str, str]) -> list[str]:
    """Return those of some columns, given with their types, of which statistics have the order."""
    return [key for key, type_ in types.items() if type_ in _ORDERED or type_.startswith("decimal(")]


def _hashed(types: Mapping[str, str], relation: str) -> str:
    """The hash of a key, in SQL; empty where equal values of a type may have different ones."""
    if not types or len(ordered_keys(types)) < len(types):
        return ""
    return f"xxhash64({', '.join(f'CAST({relation}.{identifier(key)} AS {type_})' for key, type_ in types.items())})"


def _text(value: str) -> str:
    """An expression as text that any client can read: Spark's strings may have bytes that are no UTF-8."""
    return f"make_valid_utf8(CAST({value} AS STRING))"


def _written(value: str, type_: str) -> str:
    text = literal(value)
    return text if type_ == "string" else f"CAST({text} AS {type_})"


def key_condition(key: str, of_values: str, *, nulls: bool) -> Callable[[str], str]:
    """Return the condition on a relation that the values of a column fulfil.

    Args:
        key: The column, quoted.
        of_values: What follows the column in the condition on the values that are not NULL; empty if there are none.
        nulls: Whether one is NULL.
    """

    def condition(relation: str) -> str:
        column = f"{relation}.{key}"
        found = [*([f"{column} {of_values}"] if of_values else []), *([f"{column} IS NULL"] if nulls else [])]
        return f"({' OR '.join(found) or 'false'})"

    return condition
