"""By which columns of which tables a subject is found: those that declare it, and those that SQL passes on unchanged."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.sql.table_query import TableName, TableQuery

ROW = "row"
"""Column of a quarantine, and of the dead letters of syncs: the whole row, JSON."""

Node = tuple[str, str]
"""A table, as schema.table, and one of its columns."""


@dataclass(frozen=True)
class SubjectTable:
    """A table, as far as it tells where the rows of a subject are.

    Attributes:
        name: As schema.table.
        columns: Those that are known, with their marks.
        lineage: The columns that each is computed from, as schema.table.column.
        passed_on: Those that have the values of these columns unchanged.
        rows_of: The table whose rows its column `ROW` has; empty for one with rows of its own.
        fields: How rows of subjects are known otherwise, by their kind.
        set_aside: Whether it has only rows that others refused.
    """

    name: str
    columns: Sequence[Column] = ()
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    passed_on: Collection[str] = ()
    rows_of: str = ""
    fields: Mapping[str, Sequence[Match]] = field(default_factory=dict[str, Sequence[Match]])
    set_aside: bool = False


@dataclass(frozen=True)
class SubjectColumns:
    """Where subjects of one kind are found.

    Attributes:
        matches: How their rows are known, by table; each of these tables comes after all that it is computed from.
        unfound: Tables with personal data in which they cannot be found, with the reason.
        set_aside: Those of the tables that have only rows that others refused.
    """

    matches: Mapping[str, Sequence[Match]]
    unfound: Mapping[str, str]
    set_aside: Collection[str] = ()


def computed_table(
    name: str, columns: Sequence[Column], query: TableQuery, known: Mapping[TableName, Sequence[str]]
) -> SubjectTable:
    """Return a table that is made by a query.

    Args:
        name: As schema.table.
        columns: As declared.
        query: The query.
        known: Columns of the tables that it reads, as far as they are known.
    """
    inputs = {f"{table.schema}.{table.table}": names for table, names in known.items()}
    return SubjectTable(name, columns, query.lineage(inputs), query.passed_on(inputs))


def subject_columns(tables: Iterable[SubjectTable], kind: str) -> SubjectColumns:
    """Find the columns that identify subjects of a kind, and the tables with personal data that have none of them.

    Personal data is what is declared `pii` or as a subject of the kind, what that is computed from, and what is computed
    from it. A column that is declared `pii: false` has none, and none is passed on by it.
    """
    named = {table.name.casefold(): table for table in tables}
    deps = {
        (table.name, column.casefold()): [_node(named, source) for source in sources]
        for table in named.values()
        for column, sources in table.lineage.items()
    }
    declared = [(table.name, column) for table in named.values() for column in table.columns]
    subjects = {(name, column.name.casefold()) for name, column in declared if column.subject == kind}
    fields = [(table.name, way) for table in named.values() for way in table.fields.get(kind, ())]
    subjects |= {(name, way.column.casefold()) for name, way in fields if not way.name}
    marked = subjects | {(name, column.name.casefold()) for name, column in declared if column.pii}
    free = {(name, column.name.casefold()) for name, column in declared if column.pii is False} - subjects
    unchanged = {(table.name, column.casefold()) for table in named.values() for column in table.passed_on} - free
    found = _downstream(subjects, deps, lambda node: node in unchanged)
    personal = _downstream(marked, deps, lambda node: node not in free) | _upstream(marked, deps, free)
    matches, unfound = dict[str, Sequence[Match]](), dict[str, str]()
    for name in _inputs_first(named, deps):
        table = named[name.casefold()]
        of = table.rows_of or name
        spelled = {each.casefold(): each for each in _names(named.get(of.casefold()))}
        ways = list(table.fields.get(kind, ()))
        known = {way.column.casefold() for way in ways}
        columns = sorted(spelled.get(column, column) for each, column in found if each == of and column not in known)
        if ways or columns:
            matches[name] = [*ways, *(Match(ROW, column) if table.rows_of else Match(column) for column in columns)]
        elif held := sorted(column for each, column in personal if each == of):
            unfound[name] = _why_unfound(named.get(of.casefold()), kind, held)
    aside = {table.name for table in named.values() if table.rows_of or table.set_aside}
    return SubjectColumns(matches, unfound, aside)


def _why_unfound(table: SubjectTable | None, kind: str, held: Sequence[str]) -> str:
    other = sorted({*(column.subject for column in table.columns if column.subject), *table.fields} if table else ())
    subjects = f" Its subjects are of the kind {', '.join(other)}." if other else ""
    return f"No column identifies a {kind}. Personal data, or computed from it: {', '.join(held)}.{subjects}"


def _node(named: Mapping[str, SubjectTable], source: str) -> Node:
    table, _, column = source.rpartition(".")
    # Names in SQL ignore case.
    found = named.get(table.casefold())
    return (found.name if found else table, column.casefold())


def _names(table: SubjectTable | None) -> list[str]:
    return [*table.lineage, *(column.name for column in table.columns)] if table else []


def _downstream(start: Collection[Node], deps: Mapping[Node, Sequence[Node]], follows: Callable[[Node], bool]) -> set[Node]:
    found, before = {*start}, 0
    while len(found) > before:
        before = len(found)
        found |= {node for node, sources in deps.items() if follows(node) and found.intersection(sources)}
    return found


def _upstream(start: Collection[Node], deps: Mapping[Node, Sequence[Node]], free: Collection[Node]) -> set[Node]:
    found, waiting = set[Node](), [*start]
    while waiting:
        sources = [node for node in deps.get(waiting.pop(), ()) if node not in found and node not in free]
        found.update(sources)
        waiting += sources
    return found


def _inputs_first(named: Mapping[str, SubjectTable], deps: Mapping[Node, Sequence[Node]]) -> Sequence[str]:
    """The tables, each after those that it is computed from, as far as there is such an order."""
    inputs = dict[str, set[str]]()
    for (name, _), sources in deps.items():
        inputs.setdefault(name, set()).update(source for source, _ in sources)
    waiting, ordered = sorted(table.name for table in named.values()), list[str]()
    while waiting:
        ready = [name for name in waiting if inputs.get(name, set()).isdisjoint({*waiting} - {name})]
        ready = [name for name in ready if named[name.casefold()].rows_of not in waiting] or waiting[:1]
        ordered += ready
        waiting = [name for name in waiting if name not in ready]
    return ordered
