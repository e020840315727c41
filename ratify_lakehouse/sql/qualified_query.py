"""A query as sqlglot has parsed it: each column says of which source it is, and values are as their author wrote them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ratify_lakehouse.sql.query_parts import Nodes, NotDerivable
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from ratify_lakehouse.sql.verbatim_dialect import verbatim, written_otherwise


def qualified(query: TableQuery, columns: Mapping[TableName, Sequence[str]]) -> Nodes:
    """The parsed query, in which each column has its source's name; `verbatim` writes it.

    Raises:
        NotDerivable: it cannot be parsed, or sqlglot would not write it as its author did.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.qualify import qualify

    schema: dict[str, Any] = {}
    for name, names in columns.items():
        tables = schema.setdefault(name.catalog, {}) if any(each.catalog for each in columns) else schema
        tables.setdefault(name.schema, {})[name.table] = dict.fromkeys(names, "string")
    dialect = verbatim(query.dialect)
    try:
        root = sqlglot.parse_one(query.text, dialect=dialect)
        if (word := written_otherwise(query.text, root, query.dialect)) is not None:
            raise NotDerivable(f"sqlglot would write {word!r} of it in another way")
        _refuse_common_columns(root)
        _name_fields(root)
        _keep_case(root)
        _mark_qualifiers(root)
        found = qualify(root, dialect=dialect, schema=schema, validate_qualify_columns=True)
        _refuse_qualifiers_as_columns(found)
    except SqlglotError as error:
        raise NotDerivable(f"sqlglot cannot follow it: {str(error).splitlines()[0]}") from error
    _restore_case(found)
    _name_each(found)
    return found


def _keep_case(root: Nodes) -> None:
    from sqlglot import exp

    for name in root.find_all(exp.Identifier):
        name.meta["written"] = name.name


def _mark_qualifiers(root: Nodes) -> None:
    from sqlglot import exp

    for column in root.find_all(exp.Column):
        for name in column.parts[:-1]:
            name.meta["qualifier"] = True


def _refuse_qualifiers_as_columns(found: Nodes) -> None:
    """Refuse `customer.id` where sqlglot takes the name of a joined table for a column that has a field of this name.

    It does so for tables of SEMI and ANTI joins, because no column of these comes out of the join. The engine looks for a
    table of the name first.
    """
    from sqlglot import exp

    for column in found.find_all(exp.Column):
        if column.this.meta.get("qualifier"):
            select = column.parent_select
            read = [select.args.get("from_"), *(select.args.get("joins") or ())] if select else []
            if column.name.lower() in {each.this.alias_or_name.lower() for each in read if each}:
                raise NotDerivable(f"{column.name} is the name of a table that it joins, and of a column")


def _refuse_common_columns(root: Nodes) -> None:
    """Refuse joins by columns of the same name: what such a column is, its type among it, is not said by the text."""
    from sqlglot import exp

    for join in root.find_all(exp.Join):
        if join.args.get("using") or join.args.get("method"):
            raise NotDerivable(f"it has a {join.args.get('method') or 'USING'} JOIN")


def _restore_case(root: Nodes) -> None:
    """Give names that are part of a value the case in which they were written.

    The key of a map is one, and the name of a field of a structure: JSON and hashes have it.
    """
    from sqlglot import exp

    for dot in root.find_all(exp.Dot):
        _restore(dot.expression)
    for field in root.find_all(exp.ColumnDef):
        _restore(field.this)
    for alias in [each for call in root.find_all(exp.Anonymous) for each in call.expressions if isinstance(each, exp.Alias)]:
        _restore(alias.args["alias"])
        if isinstance(alias.this, (exp.Column, exp.Identifier)) and alias.this.name == alias.alias:
            alias.replace(alias.this.copy())


def _restore(name: Nodes) -> None:
    from sqlglot import exp

    if isinstance(name, exp.Identifier) and (written := name.meta.get("written")):
        name.set("this", written)


def _name_fields(root: Nodes) -> None:
    """Name the fields that a structure has of columns; a column may become another expression, which names no field."""
    from sqlglot import exp

    for call in root.find_all(exp.Anonymous):
        for argument in list(call.expressions) if call.name.lower() == "struct" else ():
            if isinstance(argument, (exp.Column, exp.Identifier)) and not argument.find(exp.Star):
                argument.replace(exp.alias_(argument.copy(), argument.name, quoted=True))


def _name_each(root: Nodes) -> None:
    """Give columns of the same name, such as two that are 0, names of their own where the first branch has the names."""
    from sqlglot import exp

    for operation in root.find_all(exp.SetOperation):
        branch: Nodes = operation.right.unnest()
        while isinstance(branch, exp.SetOperation):
            branch = branch.left.unnest()
        names = branch.named_selects
        for number, each in enumerate(branch.selects):
            if names.count(names[number]) > 1:
                each.replace(exp.alias_(each.unalias().copy(), f"ratify_column_{number}", quoted=True))
