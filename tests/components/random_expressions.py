"""Random expressions, aggregates and conditions over columns of known kinds."""

import random
import re
from collections.abc import Mapping, Sequence

_CONSTANT = re.compile(r"/\*c\*/ -?\d+")
_SCALAR = ("int", "str", "dec", "day", "at")
# What can be made of a column of a kind, and the kind of that.
_EXPRESSIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    "int": [
        ("{}", "int"),
        ("{} % 2", "int"),
        ("coalesce({}, -1)", "int"),
        ("CASE WHEN {} > 1 THEN 'hi' ELSE 'lo' END", "str"),
    ],
    "str": [("{}", "str"), ("{}", "str"), ("upper({})", "str"), ("length({})", "int"), ("{} LIKE '%a%'", "bool")],
    "dec": [("{}", "dec"), ("CAST({} AS INT)", "int")],
    "day": [("{}", "day"), ("month({})", "int"), ("CAST(date_trunc('MONTH', {}) AS DATE)", "day")],
    "at": [("{}", "at"), ("date_trunc('HOUR', {})", "at"), ("CAST({} AS DATE)", "day")],
    "array": [("size({})", "int"), ("get({}, 0)", "str"), ("array_contains({}, 'a')", "bool")],
    "struct": [("{}.x", "int"), ("{}.y", "str")],
    "float": [("{}", "float"), ("CAST({} AS INT)", "int")],
    "bool": [("{}", "bool")],
}
_AGGREGATES: Mapping[str, Sequence[str]] = {
    "int": ["sum({})", "avg({})", "median({})", "percentile({}, 0.25)", "count(DISTINCT {})", "max({0}) - min({0})"],
    "dec": ["sum({})", "avg({})", "min({})", "count(DISTINCT {})"],
    "str": ["min({})", "max({})", "count(DISTINCT {})", "sort_array(collect_set({}))", "sort_array(collect_list({}))"],
    "day": ["min({})", "max({})", "count({})"],
    "at": ["max({})", "count(DISTINCT {})"],
    "float": ["sum({})", "min({})"],
}


def recoded(text: str, chance: random.Random) -> str:
    """Return a query with other constants: the same columns, other code."""
    other = _CONSTANT.sub(lambda _: constant(chance), text)
    return f"{other}\n-- {chance.random()}"


def constant(chance: random.Random) -> str:
    """Return a constant that `recoded` finds again."""
    return f"/*c*/ {chance.randint(-3, 4)}"


class RandomExpressions:
    """Makes them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, columns: Mapping[str, str], kinds: Sequence[str] = _SCALAR) -> tuple[str, str] | None:
        found = [(name, kind) for name, kind in columns.items() if kind in kinds]
        if not found:
            return None
        name, kind = self._chance.choice(found)
        return (name.upper() if self._chance.random() < 0.05 else name), kind

    def expression(self, columns: Mapping[str, str]) -> tuple[str, str]:
        name, kind = self.pick(columns, tuple(_EXPRESSIONS)) or ("1", "int")
        text, made = self._chance.choice(_EXPRESSIONS[kind])
        return text.format(name), made

    def aggregate(self, columns: Mapping[str, str]) -> tuple[str, str]:
        """An aggregate that is the same in whatever order the rows are read, and its kind."""
        if self._chance.random() < 0.15 or (picked := self.pick(columns, tuple(_AGGREGATES))) is None:
            return "count(*)", "other"
        name, kind = picked
        if self._chance.random() < 0.1 and (by := self.pick(columns)):
            return f"max_by({name}, struct({by[0]}, {name}))", kind
        text = self._chance.choice(_AGGREGATES[kind]).format(name)
        one = " - " not in text and not text.startswith("sort_array")
        filtered = f" FILTER (WHERE {self.condition(columns)})" if self._chance.random() < 0.1 and one else ""
        same = text.startswith(("min", "max(")) and " - " not in text
        return f"{text}{filtered}", kind if same else "other"

    def condition(self, columns: Mapping[str, str]) -> str:
        name, kind = self.pick(columns, tuple(_EXPRESSIONS)) or ("1", "int")
        number = constant(self._chance)
        tests = {
            "int": [
                f"{name} > {number}",
                f"{name} < {number}",
                f"NOT ({name} <=> {number})",
                f"{name} IN (1, {number})",
            ],
            "dec": [f"{name} > {number}"],
            "str": [f"{name} LIKE 'a%'", f"length({name}) > {number}", f"{name} <> 'it\\'s'"],
            "struct": [f"{name}.x > {number}"],
            "array": [f"size({name}) > {number}"],
        }
        return self._chance.choice([*tests.get(kind, []), f"{name} IS NOT NULL", f"({name} IS NULL OR {name} IS NOT NULL)"])

    def where(self, columns: Mapping[str, str], chance: float = 0.4) -> str:
        if self._chance.random() > chance:
            return ""
        more = f" AND {self.condition(columns)}" if self._chance.random() < 0.2 else ""
        return f" WHERE {self.condition(columns)}{more}"
