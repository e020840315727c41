"""Random queries over the inputs of `random_inputs`, each with columns that identify its rows, whatever the inputs hold."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.components.random_expressions import RandomExpressions, constant, recoded
from tests.components.random_inputs import COLUMNS, UNIQUE


@dataclass(frozen=True)
class RandomQuery:
    """A query.

    Attributes:
        text: Names the inputs as `bronze.<name>`.
        columns: Kinds of its columns, by name.
        keys: Columns that identify a row.
        kind: What it is made of at its top.
    """

    text: str
    columns: Mapping[str, str]
    keys: tuple[str, ...]
    kind: str

    def recoded(self, chance: random.Random) -> "RandomQuery":
        """Return the query with other constants: the same columns, other code."""
        return RandomQuery(recoded(self.text, chance), self.columns, self.keys, self.kind)


@dataclass(frozen=True)
class _Relation:
    """What stands in a FROM, the kinds of its columns, and which of them identify a row."""

    text: str
    columns: Mapping[str, str]
    unique: tuple[str, ...]


@dataclass(frozen=True)
class _Joined:
    """A FROM: its text, kinds of its qualified columns, and which of them identify a row; none if nothing does."""

    text: str
    columns: Mapping[str, str]
    unique: tuple[str, ...]


class QueryGrammar:
    """Makes random queries."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)  # noqa: S311 queries, not keys
        self._make = RandomExpressions(self._chance)
        self._names = 0

    def query(self, depth: int) -> RandomQuery:
        """Return a query, in which others are nested up to a depth."""
        kinds: Mapping[str, tuple[int, Callable[[int], RandomQuery]]] = {
            "rows": (4, self._rows),
            "groups": (6, self._groups),
            "distinct": (2, self._distinct),
            "window": (4, self._window),
            "latest": (2, self._latest),
            "union all": (2, self._union_all),
            "set operation": (2, self._set_operation),
            "as-of join": (2, self._as_of),
            "with": (3, self._with),
            "outer join": (1, self._outer_join),
            "query in an expression": (1, self._query_in_an_expression),
        }
        (kind,) = self._chance.choices(list(kinds), [weight for weight, _ in kinds.values()])
        made = kinds[kind][1](depth)
        return RandomQuery(made.text, made.columns, made.keys, kind)

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _relation(self, depth: int, *, unique: bool = False) -> _Relation:
        """A table, or a query in brackets; `unique`: columns of it identify a row."""
        if depth <= 0 or self._chance.random() < 0.6:
            name = self._chance.choice(list(UNIQUE if unique else COLUMNS))
            return _Relation(f"bronze.{name}", COLUMNS[name], UNIQUE.get(name, ()))
        made = self.query(depth - 1)
        return _Relation(f"({made.text})", made.columns, made.keys)

    def _from(self, relation: _Relation) -> _Joined:
        alias = self._name()
        columns = {f"{alias}.{name}": kind for name, kind in relation.columns.items()}
        return _Joined(f"{relation.text} AS {alias}", columns, tuple(f"{alias}.{name}" for name in relation.unique))

    def _joined(self, depth: int, *, unique: bool = False) -> _Joined:
        """A FROM with up to two joins; `unique`: none of them has several rows for one of the first relation."""
        found = self._from(self._relation(depth, unique=unique))
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            filtering = self._chance.random() < 0.25
            other = self._from(self._one_for_each(depth - 1) if unique and not filtering else self._relation(depth - 1))
            if (on := self._same(found, other)) is None:
                continue
            if unique and not filtering:
                kind, same = self._chance.choice(("JOIN", "LEFT JOIN", "LEFT JOIN")), on
            else:
                kind = self._chance.choice(("SEMI JOIN", "ANTI JOIN") if filtering else ("JOIN", "LEFT JOIN"))
                same = on if self._chance.random() < 0.7 else f"{on} AND {self._make.condition(other.columns)}"
            columns = found.columns if filtering else {**found.columns, **other.columns}
            found = _Joined(f"{found.text} {kind} {other.text} ON {same}", columns, found.unique)
        return found

    def _one_for_each(self, depth: int) -> _Relation:
        """A relation of which one column alone identifies a row."""
        if self._chance.random() < 0.5:
            return _Relation("bronze.d", COLUMNS["d"], UNIQUE["d"])
        found = self._from(self._relation(depth))
        key, _ = self._make.pick(found.columns, ("int",)) or ("1", "int")
        value, kind = self._make.aggregate(found.columns)
        return _Relation(
            f"(SELECT {key} AS g, {value} AS w FROM {found.text} GROUP BY {key})", {"g": "int", "w": kind}, ("g",)
        )

    def _same(self, one: _Joined, other: _Joined) -> str | None:
        """The condition that two have the same value; of the other its key, where it has one alone."""
        right = (
            (other.unique[0], other.columns[other.unique[0]])
            if len(other.unique) == 1
            else self._make.pick(other.columns, ("int",))
        )
        if right is None or (left := self._make.pick(one.columns, (right[1],))) is None:
            return None
        return f"{left[0]} {self._chance.choice(('=', '=', '=', '<=>'))} {right[0]}"

    def _key_columns(self, found: _Joined) -> tuple[list[str], dict[str, str]]:
        """The selected keys of a FROM that has some, and the kinds of their names."""
        selected = [f"{name} AS k{number}" for number, name in enumerate(found.unique)]
        return selected, {f"k{number}": found.columns[name] for number, name in enumerate(found.unique)}

    def _rows(self, depth: int) -> RandomQuery:
        found = self._joined(depth, unique=True)
        selected, kinds = self._key_columns(found)
        keys = tuple(kinds)
        for number in range(self._chance.randint(1, 3)):
            text, kind = self._make.expression(found.columns)
            selected.append(f"{text} AS v{number}")
            kinds[f"v{number}"] = kind
        return RandomQuery(
            f"SELECT {', '.join(selected)} FROM {found.text}{self._make.where(found.columns)}", kinds, keys, ""
        )

    def _groups(self, depth: int) -> RandomQuery:
        found = self._joined(depth)
        by = dict(self._make.expression(found.columns) for _ in range(self._chance.choice((1, 1, 2))))
        kinds = {f"k{number}": kind for number, kind in enumerate(by.values())}
        selected = [f"{text} AS k{number}" for number, text in enumerate(by)]
        keys = tuple(kinds)
        for number in range(self._chance.randint(1, 3)):
            text, kind = self._make.aggregate(found.columns)
            selected.append(f"{text} AS v{number}")
            kinds[f"v{number}"] = kind
        having = f" HAVING count(*) > {constant(self._chance)}" if self._chance.random() < 0.2 else ""
        # A column of the input is meant by its name, where it has that of an alias.
        hidden = {name.rpartition(".")[2].lower() for name in found.columns}.intersection(keys)
        aliases = ", ".join(by if hidden else keys)
        group = self._chance.choice((", ".join(by), aliases, "ALL", ", ".join(str(n + 1) for n in range(len(by)))))
        text = f"SELECT {', '.join(selected)} FROM {found.text}{self._make.where(found.columns)} GROUP BY {group}{having}"
        return RandomQuery(text, kinds, keys, "")

    def _distinct(self, depth: int) -> RandomQuery:
        found = self._joined(depth)
        columns = [self._make.expression(found.columns) for _ in range(self._chance.randint(1, 3))]
        kinds = {f"k{number}": kind for number, (_, kind) in enumerate(columns)}
        selected = ", ".join(f"{text} AS k{number}" for number, (text, _) in enumerate(columns))
        return RandomQuery(
            f"SELECT DISTINCT {selected} FROM {found.text}{self._make.where(found.columns)}", kinds, tuple(kinds), ""
        )

    def _window(self, depth: int) -> RandomQuery:
        found = self._joined(depth, unique=True)
        selected, kinds = self._key_columns(found)
        keys = tuple(kinds)
        text, kind = self._make.expression(found.columns)
        selected.append(f"{text} AS p")
        for number in range(self._chance.randint(1, 2)):
            by = self._chance.choice((text, (self._make.pick(found.columns) or ("1", ""))[0]))
            order = ", ".join(dict.fromkeys((*[(self._make.pick(found.columns) or ("1", ""))[0]], *found.unique)))
            value, value_kind = self._make.pick(found.columns, ("int", "str", "dec")) or ("1", "int")
            functions = [
                "row_number()",
                f"lag({value})",
                f"max({value})",
                f"count({value})",
                f"last_value({value}) IGNORE NULLS",
            ]
            functions += [f"sum({value})"] if value_kind != "str" else ["dense_rank()"]
            selected.append(f"{self._chance.choice(functions)} OVER (PARTITION BY {by} ORDER BY {order}) AS v{number}")
            kinds[f"v{number}"] = "other"
        text = f"SELECT {', '.join(selected)} FROM {found.text}{self._make.where(found.columns)}"
        return RandomQuery(text, {**kinds, "p": kind}, keys, "")

    def _latest(self, depth: int) -> RandomQuery:
        """Of several rows the one that is greatest, as for bronze with corrections."""
        found = self._joined(depth, unique=True)
        by, kind = self._make.expression(found.columns)
        value, value_kind = self._make.expression(found.columns)
        order = ", ".join(f"{name} DESC" for name in ((self._make.pick(found.columns) or ("1", ""))[0], *found.unique))
        inner = (
            f"SELECT {by} AS k0, {value} AS v0, row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS place "
            f"FROM {found.text}{self._make.where(found.columns)}"
        )
        text = f"SELECT k0, v0 FROM ({inner}) AS r WHERE place = 1"
        return RandomQuery(text, {"k0": kind, "v0": value_kind}, ("k0",), "")

    def _union_all(self, depth: int) -> RandomQuery:
        sides = [self._from(self._relation(depth - 1, unique=True)) for _ in range(2)]
        texts = list[str]()
        for number, side in enumerate(sides):
            whole = ", ".join(f"CAST({name} AS STRING)" for name in side.unique)
            value, _ = self._make.pick(side.columns, ("int",)) or ("0", "int")
            texts.append(
                f"SELECT '{number}' AS k0, concat_ws('/', {whole}) AS k1, CAST({value} AS INT) AS v0 "
                f"FROM {side.text}{self._make.where(side.columns)}"
            )
        return RandomQuery(" UNION ALL ".join(texts), {"k0": "str", "k1": "str", "v0": "int"}, ("k0", "k1"), "")

    def _set_operation(self, depth: int) -> RandomQuery:
        sides = [self._joined(depth - 1) for _ in range(2)]
        picked = [self._make.pick(side.columns, ("int",)) or ("0", "int") for side in sides]
        texts = [
            f"SELECT CAST({name} AS INT) AS k0 FROM {side.text}{self._make.where(side.columns)}"
            for side, (name, _) in zip(sides, picked, strict=True)
        ]
        operator = self._chance.choice((" UNION ", " EXCEPT ", " INTERSECT "))
        return RandomQuery(operator.join(texts), {"k0": "int"}, ("k0",), "")

    def _as_of(self, depth: int) -> RandomQuery:
        """For each row of `a`, the last of `e` up to its time."""
        condition = f"e.k = a.k AND e.at <= a.at AND e.v > {constant(self._chance)}"
        if self._chance.random() < 0.5:
            value = "max_by(e.v, struct(e.at, e.id))"
            text = (
                f"SELECT a.id AS k0, {value} AS v0 FROM bronze.a AS a LEFT JOIN bronze.e AS e ON {condition} GROUP BY a.id"
            )
            return RandomQuery(text, {"k0": "int", "v0": "int"}, ("k0",), "")
        both = (
            "SELECT id, k, at, CAST(NULL AS INT) AS seen, true AS asks FROM bronze.a UNION ALL "
            f"SELECT id, k, at, v, false FROM bronze.e WHERE v > {constant(self._chance)}"
        )
        over = "PARTITION BY k ORDER BY at, asks, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        inner = f"SELECT id, asks, last_value(seen) IGNORE NULLS OVER ({over}) AS v0 FROM ({both}) AS u"
        return RandomQuery(f"SELECT id AS k0, v0 FROM ({inner}) AS s WHERE asks", {"k0": "int", "v0": "int"}, ("k0",), "")

    def _with(self, depth: int) -> RandomQuery:
        inner, name = self.query(depth - 1), self._name()
        found = self._from(_Relation(name, inner.columns, inner.keys))
        other = self._from(self._relation(0))
        if (on := self._same(other, found)) is None:
            return inner
        key, kind = self._make.pick(other.columns) or ("1", "int")
        value, _ = self._make.aggregate({**other.columns, **found.columns})
        join = self._chance.choice(("JOIN", "LEFT JOIN"))
        text = (
            f"WITH {name} AS ({inner.text}) SELECT {key} AS k0, {value} AS v0 FROM {other.text} {join} {found.text} ON {on}"
        )
        return RandomQuery(
            f"{text}{self._make.where(other.columns, 0.2)} GROUP BY {key}", {"k0": kind, "v0": "other"}, ("k0",), ""
        )

    def _outer_join(self, depth: int) -> RandomQuery:
        one = self._from(self._relation(depth - 1, unique=True))
        other = self._from(_Relation("bronze.d", COLUMNS["d"], UNIQUE["d"]))
        on = self._same(one, other)
        if on is None:
            return self._rows(depth)
        both = _Joined(
            f"{one.text} {self._chance.choice(('FULL', 'RIGHT'))} JOIN {other.text} ON {on}",
            {**one.columns, **other.columns},
            (*one.unique, *other.unique),
        )
        selected, kinds = self._key_columns(both)
        keys = tuple(kinds)
        text, kind = self._make.expression(both.columns)
        return RandomQuery(f"SELECT {', '.join(selected)}, {text} AS v0 FROM {both.text}", {**kinds, "v0": kind}, keys, "")

    def _query_in_an_expression(self, depth: int) -> RandomQuery:
        found = self._from(self._relation(depth - 1, unique=True))
        selected, kinds = self._key_columns(found)
        name, _ = self._make.pick(found.columns, ("int",)) or ("1", "int")
        condition = self._chance.choice(
            (
                f"EXISTS (SELECT 1 FROM bronze.b AS x WHERE x.k = {name} AND x.w > {constant(self._chance)})",
                f"{name} IN (SELECT x.k FROM bronze.d AS x)",
                f"{name} > (SELECT min(x.w) FROM bronze.b AS x)",
            )
        )
        text = f"SELECT {', '.join(selected)}, {name} AS v0 FROM {found.text} WHERE {condition}"
        return RandomQuery(text, {**kinds, "v0": "int"}, tuple(kinds), "")
