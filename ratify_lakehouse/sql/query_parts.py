"""A parsed query, taken apart: its sources, conditions, groups and windows, as sqlglot has them."""

from collections.abc import Sequence
from typing import Any

from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.table_query import Dialect, TableName, TableQuery, syntax_tree
from ratify_lakehouse.sql.time_words import is_of_the_time
from ratify_lakehouse.sql.verbatim_dialect import AGGREGATES

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
        "Randstr",
        "SessionUser",
        "Shuffle",
        "Uniform",
        "Uuid",
    }
)
# Those that sqlglot takes for any function, if only by their full names.
_BY_NAME = """
    aes_encrypt curdate current_date current_time current_timestamp current_user getdate input_file_block_length
    input_file_block_start input_file_name java_method localtimestamp monotonically_increasing_id now rand randn random
    randstr reflect session_user shuffle spark_partition_id try_reflect uniform user uuid
    current_connection_id current_database current_query current_query_id current_schema current_schemas currval
    gen_random_uuid get_current_time get_current_timestamp nextval today transaction_timestamp txid_current uuidv4 uuidv7
"""
_NONDETERMINISTIC_BY_NAME = frozenset(_BY_NAME.split())
_OF_AN_ORDER = frozenset(
    {"AnyValue", "ApproxQuantile", "ArrayAgg", "ArrayUniqueAgg", "First", "FirstValue", "Last", "LastValue"}
)
_OF_AN_ORDER_BY_NAME = frozenset({"arbitrary", "histogram_numeric", "json_group_array", "list", "reservoir_quantile"})
# What makes of an array the same in whatever order it is.
_IN_ANY_ORDER = frozenset({"ArrayMax", "ArrayMin", "ArraySize", "ArraySort", "SortArray"})


def nondeterministic(query: TableQuery) -> list[str]:
    """Return what a query computes of more than the rows of its inputs: of the time, of chance, of the order of rows.

    Raises:
        UnsafeDeclaration: it says itself at which version it reads an input.
    """
    from sqlglot import exp

    root, found = syntax_tree(query.text, query.dialect), list[str]()
    for node in root.find_all(exp.Func, exp.Limit, exp.TableSample, exp.Literal, exp.Column, exp.Table):
        if isinstance(node, exp.Table):
            _check_no_version(node, query)
        elif isinstance(node, exp.TableSample):
            found.append("TABLESAMPLE")
        elif isinstance(node, exp.Limit):
            if not (node.parent and node.parent.args.get("order")):
                found.append("LIMIT without ORDER BY")
        elif _of_chance(node) or is_of_the_time(node) or (_of_an_order(node) and not _ordered(node)):
            found.append(node.sql(dialect=query.dialect))
    return found


def reads_all_columns(query: TableQuery) -> bool:
    """Return whether a query has a `*` that stands for columns."""
    from sqlglot import exp

    stars = syntax_tree(query.text, query.dialect).find_all(exp.Star)
    return any(not isinstance(star.parent, exp.Count) for star in stars)


def _check_no_version(table: Nodes, query: TableQuery) -> None:
    from sqlglot import exp

    version, alias = table.args.get("version"), table.args.get("alias")
    at = f" {version.sql(dialect=query.dialect)}" if version else ""
    if alias and isinstance(alias.this, exp.Parameter):
        at = f"@{alias.this.name}"
    if at:
        name = TableName(table.db, table.name, table.catalog)
        raise UnsafeDeclaration(
            f"the query reads {name}{at}, in line {query.line_of(name)} of it: changes are followed from one version of "
            "an input to the next, so the query cannot choose one. Remove it, or use the strategy full.",
            "strategy",
        )


def nondeterministic_predicate(predicate: str, dialect: Dialect) -> list[str]:
    """Return the functions of a predicate, and words for the time, whose values are not those of the row alone."""
    from sqlglot import exp

    parts = syntax_tree(predicate, dialect).find_all(exp.Func, exp.Literal, exp.Column)
    return [part.sql(dialect=dialect) for part in parts if _of_chance(part) or is_of_the_time(part)]


def of_other_rows(predicate: str, dialect: Dialect, *, windows: bool) -> list[str]:
    """Return the parts of a predicate that read tables, or other rows than the one that it is about if `windows`."""
    from sqlglot import exp

    kinds = (exp.Query, exp.Window) if windows else (exp.Query,)
    return [part.sql(dialect=dialect) for part in syntax_tree(predicate, dialect).find_all(*kinds)]


def _of_chance(call: Nodes) -> bool:
    """Whether a function gives another value for the same row at another time."""
    from sqlglot import exp

    by_name = isinstance(call, exp.Anonymous) and call.name.lower() in _NONDETERMINISTIC_BY_NAME
    now = isinstance(call, exp.StrToUnix) and call.args.get("this") is None
    return by_name or now or type(call).__name__ in _NONDETERMINISTIC


def _of_an_order(call: Nodes) -> bool:
    """Whether an aggregate has another value where the rows are read in another order."""
    from sqlglot import exp

    if isinstance(call, exp.Anonymous):
        return call.name.lower() in _OF_AN_ORDER_BY_NAME
    if isinstance(call, exp.Mode):
        return not call.args.get("deterministic")
    return type(call).__name__ in _OF_AN_ORDER or isinstance(call, exp.GroupConcat)


def _ordered(call: Nodes) -> bool:
    """Whether the query says in which order an aggregate gets the rows, or uses it as if it had none."""
    from sqlglot import exp

    node = call
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.WithinGroup)):
        node = node.parent
        if isinstance(node, exp.WithinGroup) or (isinstance(node, exp.Window) and node.args.get("order")):
            return True
    ordered_within = isinstance(call.this, exp.Order) or call.find(exp.WithinGroup) is not None
    return ordered_within or type(node.parent).__name__ in _IN_ANY_ORDER


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


# Aggregates are known as such but by their full name, as in system.builtin.sum(v).
_OF_SEVERAL_ROWS = AGGREGATES | {"session_window"}


def refuse_unsupported(root: Nodes) -> None:
    """Refuse what changes cannot be followed through.

    Raises:
        NotDerivable: the query has something of that kind.
    """
    from sqlglot import exp

    places = (exp.CTE, exp.Subquery, exp.SetOperation, exp.From, exp.Join, type(None))
    for node in root.walk():
        if (what := _UNSUPPORTED.get(type(node).__name__) or _unsupported_here(node)) is not None:
            raise NotDerivable(f"it has {what}")
        if isinstance(node, exp.Query) and not isinstance(node.parent, places):
            raise NotDerivable("it has a query in an expression")


def _unsupported_here(node: Nodes) -> str | None:
    """What of a part of a query is not supported, if the part as such is."""
    from sqlglot import exp

    if isinstance(node, exp.With) and node.recursive:
        return "WITH RECURSIVE"
    if isinstance(node, exp.Distinct) and node.args.get("on"):
        return "DISTINCT ON"
    if isinstance(node, exp.Anonymous) and node.name.lower() in _OF_SEVERAL_ROWS:
        return node.name.lower()
    if isinstance(node, exp.Subquery) and (node.args.get("joins") or not isinstance(node.this, exp.Query)):
        return "a table or a join in brackets"
    if isinstance(node, exp.Table) and node.alias_column_names:
        return f"other names for the columns of {node.name}"
    return None


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


def names_fields(expression: Nodes) -> bool:
    """Whether it names parts of its value after columns in a way that other names of these would change."""
    from sqlglot import exp

    return any(call.name.lower() == "arrays_zip" for call in expression.find_all(exp.Anonymous))


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
