"""A parsed query, taken apart: its sources, conditions, groups and windows, as sqlglot has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from resources.sql.table_query import TableName, TableQuery

Nodes = Any
"""sqlglot's expressions, whose attributes have no types."""


class NotDerivable(Exception):
    """The keys that a change affects cannot be derived from the query; the text is the reason, after "because"."""


_NONDETERMINISTIC = frozenset(
    {
        "CurrentDate",
        "CurrentDatetime",
        "CurrentTime",
        "CurrentTimestamp",
        "CurrentUser",
        "Localtime",
        "Localtimestamp",
        "Rand",
        "Randn",
        "Shuffle",
        "Uuid",
    }
)
_NONDETERMINISTIC_BY_NAME = frozenset({"input_file_name", "monotonically_increasing_id", "spark_partition_id"})


def nondeterministic(query: TableQuery) -> list[str]:
    """Return the functions of a query whose values are not those of the rows alone, as it has them."""
    import sqlglot
    from sqlglot import exp

    found = list[str]()
    for call in sqlglot.parse_one(query.text, dialect=query.dialect).find_all(exp.Func):
        by_name = isinstance(call, exp.Anonymous) and call.name.lower() in _NONDETERMINISTIC_BY_NAME
        if by_name or type(call).__name__ in _NONDETERMINISTIC:
            found.append(call.sql(dialect=query.dialect))
    return found


def qualified(query: TableQuery, columns: Mapping[TableName, Sequence[str]]) -> Nodes:
    """The parsed query, in which each column has its source's name."""
    import sqlglot
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.qualify import qualify

    schema: dict[str, Any] = {}
    for name, names in columns.items():
        tables = schema.setdefault(name.catalog, {}) if any(each.catalog for each in columns) else schema
        tables.setdefault(name.schema, {})[name.table] = dict.fromkeys(names, "string")
    try:
        return qualify(
            sqlglot.parse_one(query.text, dialect=query.dialect),
            dialect=query.dialect,
            schema=schema,
            validate_qualify_columns=True,
        )
    except SqlglotError as error:
        raise NotDerivable(f"sqlglot cannot follow it: {str(error).splitlines()[0]}") from error


_UNSUPPORTED = {
    "Limit": "LIMIT",
    "Offset": "OFFSET",
    "Fetch": "FETCH",
    "Pivot": "PIVOT",
    "TableSample": "TABLESAMPLE",
    "Cube": "CUBE",
    "Rollup": "ROLLUP",
    "GroupingSets": "GROUPING SETS",
    "Qualify": "QUALIFY",
    "Version": "a version of a table",
    "MatchRecognize": "MATCH_RECOGNIZE",
    "Exists": "EXISTS",
    "Lateral": "LATERAL",
}


def refuse_unsupported(root: Nodes) -> None:
    from sqlglot import exp

    places = (exp.CTE, exp.Subquery, exp.SetOperation, exp.From, exp.Join, type(None))
    for node in root.walk():
        if (what := _UNSUPPORTED.get(type(node).__name__)) is not None:
            raise NotDerivable(f"it has {what}")
        if isinstance(node, exp.With) and node.recursive:
            raise NotDerivable("it has WITH RECURSIVE")
        if isinstance(node, exp.Distinct) and node.args.get("on"):
            raise NotDerivable("it has DISTINCT ON")
        if isinstance(node, exp.Query) and not isinstance(node.parent, places):
            raise NotDerivable("it has a query in an expression")


def conjuncts(condition: Nodes) -> list[Nodes]:
    """The parts of a condition that all have to hold."""
    from sqlglot import exp

    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition] if condition else []


def with_of(table: Nodes) -> Nodes:
    """The WITH that a name stands for: the nearest one around it."""
    from sqlglot import exp

    node = table.parent
    while node is not None:
        within = node.args.get("with_") if isinstance(node, exp.Query) else None
        for cte in reversed(within.expressions if within else []):
            inside = table.find_ancestor(exp.CTE)
            if cte.alias.lower() == table.name.lower() and cte is not inside:
                return cte
        node = node.parent
    return None


def expression_of(select: Nodes, name: str) -> Nodes:
    found = [each for each in select.selects if each.alias_or_name.lower() == name.lower()]
    if len(found) != 1:
        raise NotDerivable(f"it has {len(found)} columns {name}")
    return found[0].unalias()


def of_groups(select: Nodes, expression: Nodes) -> bool:
    """Whether an expression has one value in each group, by the columns that the SELECT groups by; without groups, True."""
    from sqlglot import exp

    group = select.args.get("group")
    if group is None:
        return not any(_aggregates(each) for each in select.selects) and select.args.get("having") is None
    if group.args.get("all"):
        return True
    grouped = list(group.expressions)

    def within(node: Nodes) -> bool:
        if any(node == each for each in grouped):
            return True
        if isinstance(node, exp.Column):
            return False
        return all(within(child) for child in node.iter_expressions())

    return within(expression)


def _aggregates(expression: Nodes) -> bool:
    """Whether an expression has an aggregate that is not of a window."""
    from sqlglot import exp

    return any(each.find_ancestor(exp.Window) is None for each in expression.find_all(exp.AggFunc))


def partitions_of(select: Nodes) -> list[Sequence[Nodes]]:
    """What the window functions of a SELECT are partitioned by, each list once."""
    from sqlglot import exp

    found = list[Sequence[Nodes]]()
    if select.args.get("windows"):
        raise NotDerivable("it has a named window")
    for each in select.selects:
        for window in each.find_all(exp.Window):
            by: Sequence[Nodes] = window.args.get("partition_by") or ()
            if by not in found:
                found.append(by)
    if found and select.args.get("group"):
        raise NotDerivable("it has window functions over groups")
    return found
