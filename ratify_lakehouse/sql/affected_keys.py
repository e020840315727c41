"""Which rows of a table may be others when rows of its query's inputs have changed: derived from the query, by their keys.

For each place where the query names a table, there is one query for the keys that changed rows there affect. It reads the
changed rows, as they were and as they are, joined with the rows of the other tables, as they were and as they are. What a
condition compares with something that is not known of a changed row, such as an aggregate, is left out. So the keys that it
gives are those of all rows that differ, and perhaps of some that do not.

sqlglot takes the query apart. What it cannot follow, or what this module does not know, is refused: then the whole query is
computed again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from ratify_lakehouse.sql.qualified_query import qualified
from ratify_lakehouse.sql.query_parts import (
    Nodes,
    NotDerivable,
    conjuncts,
    expression_of,
    names_fields,
    of_groups,
    partitions_of,
    refuse_unsupported,
    with_of,
)
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from ratify_lakehouse.sql.verbatim_dialect import verbatim


@dataclass(frozen=True)
class KeysQuery:
    """The query for the keys that changed rows of an input affect, at one of the places where the query names it.

    Attributes:
        input: The table.
        text: It gives each key once, with the number `ratify_rows` of changed rows that affect it, as they were and as they
            are; a join multiplies them. In it, `ratify_changed_N` and `ratify_every_N` stand for the changed rows of the Nth
            input of the query, and for the rows that it has or had.
    """

    input: TableName
    text: str


def keys_queries(
    query: TableQuery, keys: Sequence[str], columns: Mapping[TableName, Sequence[str]], unknown: Collection[str] = ()
) -> list[KeysQuery]:
    """Return the queries for the keys that changes of the inputs affect.

    Args:
        query: The table's.
        keys: Columns of the query that identify a row of it.
        columns: Those of each input.
        unknown: Columns of inputs whose values are not known of changed rows; no query reads them.

    Raises:
        NotDerivable: the query does not allow it.
    """
    return _Derivation(query, columns, unknown).queries(list(keys))


@dataclass(frozen=True)
class _Source:
    """What a SELECT reads: a table, another query or rows that the text has.

    Attributes:
        name: By which columns are qualified.
        node: Its expression.
        query: If it is a query.
        table: If it is a table: its number among the inputs.
        nullable: Whether an outer join may have NULL in place of its rows, or only its existence counts.
        on: Conditions of its join.
    """

    name: str
    node: Nodes
    query: Nodes
    table: int | None
    nullable: bool
    on: Sequence[Nodes]


_Place = Sequence[int]
"""Leads from a query to one of the tables that it names: the number of a source or branch, of one in it, and so on."""


class _Derivation:
    def __init__(self, query: TableQuery, columns: Mapping[TableName, Sequence[str]], unknown: Collection[str]) -> None:
        self._dialect = verbatim(query.dialect)
        self._unknown = frozenset(unknown)
        self._inputs = list(query.inputs)
        self._root = qualified(query, columns)
        self._names = (f"ratify_source_{number}" for number in count())
        refuse_unsupported(self._root)

    def queries(self, keys: list[str]) -> list[KeysQuery]:
        from sqlglot import exp

        found, followed = list[KeysQuery](), set[int]()
        wanted = [key.lower() for key in keys]
        for place, part, table in self._places(self._root):
            followed.add(id(part.node))
            affected = self._affected(self._root, place, wanted)
            columns = [exp.column(key, quoted=True) for key in wanted]
            counted = exp.select(*columns, exp.alias_(exp.Count(this=exp.Star()), "ratify_rows"))
            grouped = counted.from_(affected.subquery("ratify_affected")).group_by(*(key.copy() for key in columns))
            text = grouped.sql(dialect=self._dialect)
            found.append(KeysQuery(self._inputs[table], text))
        for table in self._root.find_all(exp.Table):
            if table.db and id(table) not in followed:
                raise NotDerivable(f"it names {table.db}.{table.name} where changes of it are not followed")
        return found

    def _places(self, query: Nodes) -> Iterator[tuple[_Place, _Source, int]]:
        """The places where a query names tables, what it reads there, and the numbers of the tables among the inputs."""
        for number, part in enumerate(self._parts(query)):
            if part.table is not None:
                yield (number,), part, part.table
            elif part.query is not None:
                for place, source, table in self._places(part.query):
                    yield (number, *place), source, table

    def _parts(self, query: Nodes) -> list[_Source]:
        """The sources of a SELECT, or the branches of a set operation."""
        from sqlglot import exp

        if isinstance(query, exp.Subquery):
            return self._parts(query.this)
        if isinstance(query, exp.SetOperation):
            return [_Source("", side, side, None, False, ()) for side in (query.left, query.right)]
        parts = list[_Source]()
        if origin := query.args.get("from_"):
            parts.append(self._source(origin.this, False, ()))
        for join in query.args.get("joins") or ():
            side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
            if side in ("RIGHT", "FULL"):
                raise NotDerivable(f"it has a {side} JOIN")
            nullable = side == "LEFT" or kind in ("SEMI", "ANTI")
            parts.append(self._source(join.this, nullable, conjuncts(join.args.get("on"))))
        return parts

    def _source(self, node: Nodes, nullable: bool, on: Sequence[Nodes]) -> _Source:
        from sqlglot import exp

        name = node.alias_or_name
        if isinstance(node, exp.Subquery):
            return _Source(name, node, node.this, None, nullable, on)
        if isinstance(node, exp.Table) and not node.db:
            if (cte := with_of(node)) is None:
                raise NotDerivable(f"it reads {node.sql(dialect=self._dialect)!r}")
            return _Source(name, node, cte.this, None, nullable, on)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            table = TableName(node.db, node.name, node.catalog)
            numbers = [n for n, each in enumerate(self._inputs) if str(each).lower() == str(table).lower()]
            if not numbers:
                raise NotDerivable(f"it reads {table} in an unknown way")
            return _Source(name, node, None, numbers[0], nullable, on)
        if isinstance(node, exp.Values):
            return _Source(name, node, None, None, nullable, on)
        raise NotDerivable(f"it reads {node.sql(dialect=self._dialect)!r}")

    def _affected(self, query: Nodes, place: _Place, wanted: Sequence[str]) -> Nodes:
        """The query for these columns of all rows of a query that changed rows at a place may have changed."""
        from sqlglot import exp

        query = query.this if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.SetOperation):
            sides = list[Nodes]()
            for number, part in enumerate(self._parts(query)):
                changed = number == place[0]
                side = self._side(query, part.query, wanted, place[1:] if changed else None)
                # The rows of the whole have a type that the other side decides about too.
                sides.append(side if changed else side.where(exp.false()))
            return exp.union(sides[0], sides[1], distinct=False)
        partitions = partitions_of(query)
        if not partitions:
            return self._rows(query, wanted, place)
        # Of a row with a window function the whole partition is changed.
        branches = [self._of_partitions(query, place, wanted, by) for by in partitions]
        union = branches[0]
        for branch in branches[1:]:
            union = exp.union(union, branch, distinct=False)
        return union

    def _of_partitions(self, query: Nodes, place: _Place, wanted: Sequence[str], by: Sequence[Nodes]) -> Nodes:
        """The query for columns of all rows in those partitions in which rows have changed."""
        from sqlglot import exp

        if not by:
            raise NotDerivable("a window function is over all rows")
        names = [f"ratify_partition_{number}" for number in range(len(by))]
        changed = self._rows(query, [], place, dict(zip(names, by, strict=True))).distinct()
        # Each wanted column has a name of its own beside them.
        every = self._rows(query, wanted, None, dict(zip(names, by, strict=True)))
        of_changed, of_every = next(self._names), next(self._names)
        same = exp.and_(
            *(exp.NullSafeEQ(this=exp.column(name, of_every), expression=exp.column(name, of_changed)) for name in names)
        )
        columns = [exp.column(name, of_every, quoted=True) for name in wanted]
        return exp.select(*columns).from_(every.subquery(of_every)).join(changed.subquery(of_changed), on=same)

    def _every(self, query: Nodes, wanted: Sequence[str]) -> Nodes:
        """The query for these columns of all rows that a query has or had, and perhaps of some that it never had."""
        from sqlglot import exp

        query = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(query, exp.SetOperation):
            return self._rows(query, wanted, None)
        left, right = (self._side(query, part.query, wanted, None) for part in self._parts(query))
        return exp.union(left, right, distinct=False)

    def _side(self, query: Nodes, branch: Nodes, wanted: Sequence[str], place: _Place | None) -> Nodes:
        """The query for these columns of a set operation in a branch of it: of all rows, or of those that may differ."""
        from sqlglot import exp

        names = [branch.named_selects[query.named_selects.index(name)] for name in wanted]
        inner = self._every(branch, names) if place is None else self._affected(branch, place, names)
        columns = [exp.column(old, quoted=True).as_(new, quoted=True) for old, new in zip(names, wanted, strict=True)]
        return exp.select(*columns).from_(inner.subquery(next(self._names)))

    def _rows(
        self, select: Nodes, wanted: Sequence[str], place: _Place | None, more: Mapping[str, Nodes] | None = None
    ) -> Nodes:
        """The query for columns of what a SELECT joins, before it groups: of the rows changed at a place, or of all."""
        from sqlglot import exp

        parts = self._parts(select)
        changed = parts[place[0]] if place is not None else None
        used = [part for part in parts if part is changed or not part.nullable]
        usable = {part.name: part for part in used if not part.nullable}
        expressions = {name: expression_of(select, name) for name in wanted} | dict(more or {})
        for name, expression in expressions.items():
            self._check_determined(select, name, expression, usable)
        reachable = {part.name: part for part in used}
        conditions = {part.name: self._conditions(part.on, reachable if part is changed else usable) for part in used}
        for part in used:
            if part.on and not conditions[part.name]:
                raise NotDerivable(f"the join with {part.name} uses a value that is unknown for changed rows")
        where = select.args.get("where")
        filters = self._conditions(conjuncts(where and where.this), usable)
        needed = dict[str, set[str]]()
        for each in [*expressions.values(), *filters, *(on for part in used for on in conditions[part.name])]:
            for column in each.find_all(exp.Column):
                needed.setdefault(column.table, set()).add(column.name)
        made = exp.select(*[expression.copy().as_(name, quoted=True) for name, expression in expressions.items()])
        for number, part in enumerate(used):
            at = place[1:] if part is changed and place is not None else None
            relation = self._relation(part, sorted(needed.get(part.name, ())), at)
            on = exp.and_(*(condition.copy() for condition in conditions[part.name])) if conditions[part.name] else None
            made = made.from_(relation) if number == 0 else made.join(relation, on=on, join_type="inner" if on else "cross")
        return made.where(*(condition.copy() for condition in filters)) if filters else made

    def _relation(self, part: _Source, needed: Sequence[str], place: _Place | None) -> Nodes:
        """What stands for a source: its changed rows if a place in it is given, or all."""
        from sqlglot import exp

        if part.table is not None:
            which = "every" if place is None else "changed"
            return exp.alias_(exp.to_table(f"ratify_{which}_{part.table}"), part.name, table=True, quoted=True)
        if part.query is None:
            return part.node.copy()
        if not needed:
            needed = self._any_column(part.query)
        inner = self._every(part.query, needed) if place is None else self._affected(part.query, place, needed)
        return inner.subquery(exp.to_identifier(part.name, quoted=True))

    def _any_column(self, query: Nodes) -> list[str]:
        """A column that is known of each row; only its rows count."""
        for name in query.named_selects:
            if self._determined(query, name):
                return [name]
        raise NotDerivable("nothing is known of the changed rows of a query in it")

    def _conditions(self, conditions: Iterable[Nodes], sources: Mapping[str, _Source]) -> list[Nodes]:
        """Those of some conditions that are known to hold or not, given these sources."""
        return [each for each in conditions if self._known(each, sources)]

    def _known(self, expression: Nodes, sources: Mapping[str, _Source]) -> bool:
        """Whether an expression's value is known of each row of these sources."""
        from sqlglot import exp

        # A `*` stands for other columns where fewer tables are joined, or fewer columns read.
        if expression.find(exp.AggFunc, exp.Window, exp.Star) or names_fields(expression):
            return False
        for column in expression.find_all(exp.Column):
            source = sources.get(column.table)
            if source is None or (source.table is not None and column.name in self._unknown):
                return False
            if source.query is not None and not self._determined(source.query, column.name):
                return False
        return True

    def _check_determined(self, select: Nodes, name: str, expression: Nodes, sources: Mapping[str, _Source]) -> None:
        if not (self._known(expression, sources) and of_groups(select, expression)):
            raise NotDerivable(f"{name} is unknown for changed rows until the query is computed")

    def _determined(self, query: Nodes, name: str) -> bool:
        """Whether the values of a column are known of each row of a query without computing aggregates or windows."""
        from sqlglot import exp

        query = query.this if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.SetOperation):
            at = query.named_selects.index(name)
            return all(self._determined(part.query, part.query.named_selects[at]) for part in self._parts(query))
        sources = {part.name: part for part in self._parts(query) if not part.nullable}
        expression = expression_of(query, name)
        return self._known(expression, sources) and of_groups(query, expression)
