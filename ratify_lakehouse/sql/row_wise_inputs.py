"""Which inputs a query reads row by row: each of its rows comes from one row of such an input, whatever else that has."""

from collections import Counter
from collections.abc import Iterator

from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.query_parts import Nodes, with_of
from ratify_lakehouse.sql.table_query import TableName, TableQuery, syntax_tree
from ratify_lakehouse.sql.verbatim_dialect import AGGREGATES

# Parts of a SELECT by which one row decides about another.
_OF_SEVERAL_ROWS = ("group", "having", "distinct", "limit", "offset", "qualify", "pivots", "match", "sample")
# Parts of a table's place in a query, after which its rows are not those of the table.
_OTHER_ROWS = ("pivots", "sample", "version", "when", "joins")


def row_wise_inputs(query: TableQuery) -> list[TableName]:
    """Return the inputs that a query reads row by row, and only so: new rows of one give new rows of the query, and nothing
    else. In a join these are the inputs of which no row can become NULL; any number of them may be."""
    from sqlglot import exp

    root = syntax_tree(query.text, query.dialect)
    if any(each.recursive for each in root.find_all(exp.With)):
        return []
    read = Counter(_tables_read(root))
    row_wise = set(_row_wise(root))
    return [name for name in query.inputs if (full := _full(name)) in row_wise and read[full] == 1]


def _tables_read(node: Nodes) -> Iterator[str]:
    """The tables that a query reads, each as often as it does so."""
    from sqlglot import exp

    def named(inner: Nodes) -> bool:
        return isinstance(inner, exp.With)

    for each in node.walk(prune=named):
        if isinstance(each, exp.Table):
            if each.db:
                yield _name(each)
            elif (cte := with_of(each)) is not None:
                yield from _tables_read(cte.this)


def _row_wise(query: Nodes) -> Iterator[str]:
    from sqlglot import exp

    if isinstance(query, exp.Subquery):
        yield from () if _has(query, (*_OTHER_ROWS, "limit", "offset")) else _row_wise(query.this)
        return
    if not isinstance(query, exp.Select) or _has(query, _OF_SEVERAL_ROWS) or any(map(_of_several, query.selects)):
        return
    for node in _sources(query):
        if isinstance(node, exp.Subquery):
            yield from _row_wise(node)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not _has(node, _OTHER_ROWS):
            if node.db:
                yield _name(node)
            elif (cte := with_of(node)) is not None:
                yield from _row_wise(cte.this)


def _sources(select: Nodes) -> list[Nodes]:
    """What a SELECT reads, but for what an outer join may have NULL in place of, or of which only the existence counts."""
    origin = select.args.get("from_")
    found = [origin.this] if origin else []
    for join in select.args.get("joins") or ():
        side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
        if side in ("RIGHT", "FULL"):
            return []
        if side != "LEFT" and kind not in ("SEMI", "ANTI"):
            found.append(join.this)
    return found


def _of_several(expression: Nodes) -> bool:
    """Whether an expression, but for queries in it, has an aggregate or a window."""
    from sqlglot import exp

    def query(inner: Nodes) -> bool:
        return isinstance(inner, exp.Query)

    for node in expression.walk(prune=query):
        if isinstance(node, exp.AggFunc | exp.Window | exp.Any):
            return True
        if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
            return True
    return False


def _has(node: Nodes, parts: tuple[str, ...]) -> bool:
    return any(node.args.get(part) for part in parts)


def _name(table: Nodes) -> str:
    return _full(TableName(table.db, table.name, table.catalog))


def _full(name: TableName) -> str:
    """The name with the catalog's: the project's tables may be named with it and without."""
    return name.full_name(catalog_name()).lower()
