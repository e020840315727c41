"""A query that makes a table: which tables it reads, and from which of their columns it computes each of its own.

sqlglot parses it, in the dialect of the engine that will run it; the text that the engine gets is the author's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ratify_lakehouse.errors import InvalidDeclaration, UnsafeDeclaration

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.lineage import Node

Dialect = Literal["databricks", "duckdb"]
"""sqlglot's name of an engine's SQL; that of Databricks is a superset of Spark's."""

_CHECKED = "try_validate_utf8"


@lru_cache(maxsize=256)
def _statements(text: str, dialect: Dialect) -> "tuple[exp.Expr | None, ...]":
    """A text as sqlglot parses it; several ask, and parsing takes long."""
    import sqlglot

    return tuple(sqlglot.parse(text, dialect=dialect))


def syntax_tree(text: str, dialect: Dialect) -> "exp.Expr":
    """Return the syntax tree of a query or a predicate. It is shared: who changes it takes a copy.

    Raises:
        SqlglotError: it cannot be parsed.
    """
    import sqlglot

    match _statements(text, dialect):
        case (tree,) if tree:
            return tree
        case _:
            return sqlglot.parse_one(text, dialect=dialect)


@dataclass(frozen=True)
class TableName:
    """A table as a query names it: `schema.table`, or `catalog.schema.table` where it is of another catalog."""

    schema: str
    table: str
    catalog: str = ""

    def key_path(self, catalog: str) -> list[str]:
        """Return the parts of its full name, given the catalog that it is of by default."""
        return [self.catalog or catalog, self.schema, self.table]

    def full_name(self, catalog: str) -> str:
        """Return its full name, given the catalog that it is of by default."""
        return ".".join(self.key_path(catalog))

    def __str__(self) -> str:
        return ".".join(filter(None, (self.catalog, self.schema, self.table)))


@dataclass(frozen=True)
class _Reference:
    """Where a query names a table: the first and the last character of its name in the text, and whether it has an alias."""

    name: TableName
    start: int
    end: int
    aliased: bool


@dataclass(frozen=True)
class TableQuery:
    """A query over tables of the catalog.

    Attributes:
        text: As its author wrote it.
        dialect: The SQL that it is written in.
        inputs: The tables that it reads, in the order of the text.
        columns: Names of its columns; one is `*` where it selects all columns of something.
    """

    text: str
    dialect: Dialect
    inputs: tuple[TableName, ...]
    columns: tuple[str, ...]
    _references: tuple[_Reference, ...]

    @classmethod
    def parsed(cls, text: str, dialect: Dialect, where: str) -> "TableQuery":
        """Parse a query.

        Args:
            text: One SELECT statement, which names each table with its schema.
            dialect: The SQL that it is written in.
            where: Names the query in errors, such as its file.

        Raises:
            InvalidDeclaration: it is no query, cannot be parsed, or names a table without its schema.
        """
        from sqlglot import exp
        from sqlglot.errors import ParseError, SqlglotError

        try:
            statements = [statement for statement in _statements(text, dialect) if statement]
        except ParseError as error:
            fault = error.errors[0]
            found = f"{fault['start_context'][-40:]}{fault['highlight']}".strip()
            raise InvalidDeclaration(
                f"{where}, line {fault['line']}, column {fault['col']}: this is not SQL that can be parsed, "
                f"after {found!r}: {fault['description']}.{_other_engine(text, dialect)}"
            ) from error
        except SqlglotError as error:
            other = _other_engine(text, dialect)
            raise InvalidDeclaration(f"{where}: this is not SQL that can be parsed: {error}.{other}") from error
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise InvalidDeclaration(f"{where}: it has to be one SELECT statement; its rows become those of the table.")
        query = statements[0]
        references = sorted(_references(query, where), key=lambda reference: reference.start)
        inputs = tuple(dict.fromkeys(reference.name for reference in references))
        return cls(text, dialect, inputs, tuple(query.named_selects), tuple(references))

    def line_of(self, table: TableName) -> int:
        """Return the line in which the query names one of its inputs first."""
        start = next(reference.start for reference in self._references if reference.name == table)
        return self.text.count("\n", 0, start) + 1

    def lineage(self, known: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Return, for each column, the columns that it is computed from, as `schema.table.column`.

        Args:
            known: Columns of the tables that are known, by `schema.table`. Of others, the query itself has to say to which
                table a column belongs.
        """
        from sqlglot import exp

        found = dict[str, tuple[str, ...]]()
        for column, node in self.lineage_nodes(known).items():
            leaves = (
                f"{leaf.source.db}.{leaf.source.name}.{exp.to_column(leaf.name).name}"
                for leaf in node.walk()
                if isinstance(leaf.source, exp.Table) and leaf.source.db
            )
            found[column] = tuple(sorted({leaf for leaf in leaves if not leaf.endswith(".*")}))
        return found

    def passed_on(self, known: Mapping[str, Sequence[str]]) -> set[str]:
        """Return the columns whose values are those of columns of inputs, unchanged but for their type; see `lineage`."""
        return {column for column, node in self.lineage_nodes(known).items() if all(map(_is_plain, node.walk()))}

    def lineage_nodes(self, known: Mapping[str, Sequence[str]]) -> "dict[str, Node]":
        """Return, for each column, the first step of its lineage (see `lineage`); none where sqlglot cannot follow."""
        from sqlglot.errors import SqlglotError
        from sqlglot.lineage import lineage  # pyright: ignore[reportUnknownVariableType]

        schema = dict[str, dict[str, dict[str, str]]]()
        for name, columns in known.items():
            schema_name, _, table = name.partition(".")
            schema.setdefault(schema_name, {})[table] = dict.fromkeys(columns, "string")
        try:
            return lineage(None, syntax_tree(self.text, self.dialect), schema, dialect=self.dialect, trim_selects=False)
        except (SqlglotError, ValueError):
            # It tells people where columns come from; a query that sqlglot cannot follow still runs.
            return {}

    def resolved(self, relation: Callable[[TableName], str]) -> str:
        """Return the text with each table replaced by a relation: a name, or a query, which keeps the table's name."""
        parts, at = list[str](), 0
        for reference in self._references:
            replaced = relation(reference.name)
            parts += [self.text[at : reference.start], replaced]
            if replaced.startswith("(") and not reference.aliased:
                parts.append(f" AS {reference.name.table}")
            at = reference.end + 1
        return "".join([*parts, self.text[at:]])


def _is_plain(node: "Node") -> bool:
    """Whether a step of the lineage only names a column, changes its type, or checks that its bytes are a text."""
    from sqlglot import exp

    expression = node.expression
    while isinstance(expression, exp.Alias | exp.Cast | exp.Paren | exp.Anonymous):
        if isinstance(expression, exp.Anonymous) and expression.name.lower() != _CHECKED:
            return False
        expression = expression.expressions[0] if isinstance(expression, exp.Anonymous) else expression.this
    return isinstance(expression, exp.Column | exp.Table | exp.SetOperation | exp.Star)


def check_predicate(predicate: str, query: TableQuery) -> None:
    """Check that a predicate over the rows of a query can be parsed, and names its columns only.

    Raises:
        UnsafeDeclaration: it does not.
    """
    names = predicate_columns(predicate, query.dialect)
    if "*" not in query.columns:
        check_columns(names, query)


def predicate_columns(predicate: str, dialect: Dialect) -> list[str]:
    """Return the columns that a predicate names.

    Raises:
        UnsafeDeclaration: it cannot be parsed.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = syntax_tree(predicate, dialect)
    except SqlglotError as error:
        raise UnsafeDeclaration(f"{predicate!r} is not a predicate that can be parsed.") from error
    bound = {name.name for function in parsed.find_all(exp.Lambda) for name in function.expressions}
    names = [column.parts[0].name for column in parsed.find_all(exp.Column)]
    return [name for name in names if name not in bound]


def check_columns(names: Sequence[str], query: TableQuery) -> None:
    """Check that a query, which selects no `*`, gives these columns.

    Raises:
        UnsafeDeclaration: it does not.
    """
    given = {column.lower() for column in query.columns}
    if missing := [name for name in names if name.lower() not in given]:
        raise UnsafeDeclaration(f"{missing[0]!r} is not a column of the query, which returns {', '.join(query.columns)}.")


def _references(query: object, where: str) -> list[_Reference]:
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    if not isinstance(query, exp.Query):
        return []
    # A name without a schema may be that of a WITH, which hides no table: tables have their schema.
    named = {cte.alias for cte in query.find_all(exp.CTE)}
    # sqlglot has no scope for a PIVOT of DuckDB that is a statement in a query.
    in_scopes = [table for scope in traverse_scope(query) for table in scope.tables]
    found = dict[int, _Reference]()
    for table in (*in_scopes, *(each for each in query.find_all(exp.Table) if each.db)):
        if isinstance(table.this, exp.Dot) or (table.catalog and not table.db):
            line = next(part.meta.get("line") for part in table.find_all(exp.Identifier))
            shown = ".".join(part.strip('"`') for part in table.sql().split("."))
            raise InvalidDeclaration(
                f"{where}, line {line}: {shown} is not a table name: write schema.table or catalog.schema.table."
            )
        if not table.db and (table.name in named or not isinstance(table.this, exp.Identifier)):
            continue
        place = table.parts[0].meta
        if not table.db:
            raise InvalidDeclaration(
                f"{where}, line {place.get('line')}: name the table {table.name!r} with its schema, such as "
                f"silver.{table.name}."
            )
        name = TableName(table.db, table.name, table.catalog)
        found[place["start"]] = _Reference(name, place["start"], table.parts[-1].meta["end"], bool(table.alias))
    return list(found.values())


def _other_engine(text: str, dialect: Dialect) -> str:
    """What to do about a text that cannot be parsed, if it is SQL of the other engine."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    other, engine = ("databricks", "spark") if dialect == "duckdb" else ("duckdb", "duckdb")
    try:
        sqlglot.parse(text, dialect=other)
    except SqlglotError:
        return ""
    return f" It is SQL of the engine {engine}: declare `engine: {engine}`, or rewrite the query."
