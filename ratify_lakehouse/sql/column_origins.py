"""From which columns of its inputs each column of a query has its values, where that is certain.

`TableQuery.lineage` shows people where columns come from, and leaves out what sqlglot cannot follow. Here a column that may
have a value from elsewhere has no entry: whoever hides personal data has to know the difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ratify_lakehouse.sql.table_query import TableQuery, syntax_tree

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.lineage import Node

Origins = Mapping[str, frozenset[str]]
"""By column, the columns that it is computed from, as `schema.table.column`; all names are folded."""


def origins(query: TableQuery, known: Mapping[str, Sequence[str]]) -> Origins:
    """Return the columns of inputs from which each column of a query is computed; a column that may have others is left out.

    Args:
        query: The query.
        known: Columns of its inputs, by `schema.table`.
    """
    columns = {table.casefold(): {name.casefold() for name in names} for table, names in known.items()}
    tree = syntax_tree(query.text, query.dialect)
    if any(_hides_names(node) for node in tree.walk()):
        return {}
    ambiguous = {name: [f"{table}.{name}" for table in columns if name in columns[table]] for name in _qualifiers(tree)}
    found = dict[str, frozenset[str]]()
    for column, node in query.lineage_nodes(known).items():
        steps = list(node.walk())
        if all(_is_certain(step, columns) for step in steps):
            leaves = [leaf for step in steps if (leaf := _leaf(step))]
            # Engines take a qualifier for a struct, too, where a column has the name of a table.
            structs = [name for step in steps for each in _qualifiers(step.expression) for name in ambiguous.get(each, ())]
            found[column.casefold()] = frozenset([*leaves, *structs])
    return found


def _hides_names(node: "exp.Expr") -> bool:
    """Whether a part of a query makes columns of which sqlglot does not know, or only guesses, where they come from."""
    from sqlglot import exp

    if isinstance(node, exp.Table):
        # Other names for its columns, in their order; or a function, which may read any table.
        alias = node.args.get("alias")
        return bool(alias and alias.columns) or not isinstance(node.this, exp.Identifier)
    if isinstance(node, exp.With | exp.SetOperation):
        return bool(node.args.get("recursive") or node.args.get("by_name"))
    if isinstance(node, exp.Lateral):
        return isinstance(node.this, exp.Query)
    if isinstance(node, exp.Join):
        return node.args.get("method") == "NATURAL"
    return isinstance(node, exp.Pivot | exp.Columns | exp.PositionalColumn | exp.MatchRecognize)


def _is_certain(step: "Node", columns: Mapping[str, set[str]]) -> bool:
    """Whether a step of the lineage has all columns that its expression reads."""
    from sqlglot import exp

    if leaf := _leaf(step):
        table, _, column = leaf.rpartition(".")
        return column in columns.get(table, ())
    if isinstance(step.source, exp.Placeholder | exp.Table):
        return False
    return not any(_reads_otherwise(node) for node in step.expression.walk())


def _leaf(step: "Node") -> str:
    """The column of a table that a step is; empty where it is an expression."""
    from sqlglot import exp

    if not isinstance(step.source, exp.Table) or not step.source.db:
        return ""
    return f"{step.source.db}.{step.source.name}.{exp.to_column(step.name).name}".casefold()


def _reads_otherwise(node: "exp.Expr") -> bool:
    """Whether a part of an expression reads columns without being one: a star, a row, or a name whose method is called."""
    from sqlglot import exp

    if isinstance(node, exp.TableColumn):
        return True
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    return isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier)


def _qualifiers(tree: "exp.Expr") -> Iterator[str]:
    from sqlglot import exp

    yield from (column.table.casefold() for column in tree.find_all(exp.Column) if column.table)
