"""Which columns have personal data: those that are declared so, and those that are computed from them.

This is the one place that decides whether values may be shown, in previews, examples, samples and messages. A column that is
declared `pii: false` has none, whatever it is computed from; one of which it is not known what it is computed from has some,
if anything that is read has.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.column_origins import origins
from ratify_lakehouse.sql.table_query import TableName, TableQuery

IsPersonal = Callable[[str], bool]
"""Returns whether the column of this name has personal data. Names ignore case."""

ColumnsOf = Callable[[TableName], Sequence[str]]
"""Returns the columns of a table; none if it does not exist."""


@dataclass(frozen=True)
class MarkedTable:
    """A table or topic, as far as its declaration tells which of its columns have personal data.

    Attributes:
        name: As schema.table, or catalog.schema.table; of a topic see `topic_name`.
        columns: The declared ones, with their marks.
        personal: Those of them that have personal data, whatever they are computed from.
        query: What gives its rows, if it is in SQL that can be followed.
        named: The query's columns by those of the table, where it renames them; empty for one that has nothing of a row.
        reads: What it is made of otherwise, by these names.
        unknown: Columns that may have anything of what it reads.
    """

    name: str
    columns: Sequence[Column] = ()
    personal: Collection[str] = ()
    query: TableQuery | None = None
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    reads: Collection[str] = ()
    unknown: Collection[str] = ()


def topic_name(topic: str) -> str:
    """Return the name, among tables, of a topic of Kafka to which changes of a table are published."""
    return f"topic {topic}"


def records_name(topic: str) -> str:
    """Return the name, likewise, of the records of a topic whose subjects a table of records declares."""
    return f"records of {topic}"


def columns_in(catalog: UnityCatalog) -> ColumnsOf:
    """Return what gives the columns of the tables of a catalog."""

    def columns_of(name: TableName) -> Sequence[str]:
        try:
            found = catalog.table(name.full_name(catalog.connection.name)).columns or []
        except TableMissing:
            return ()
        return [column.name or "" for column in found]

    return columns_of


class PersonalColumns:
    """The columns of tables that are computed from each other, as far as they have personal data."""

    def __init__(self, tables: Callable[[], Iterable[MarkedTable]] = tuple) -> None:
        """Take the tables; they are asked for when it has to be known."""
        self._declared = tables

    def of_query(self, query: TableQuery, columns_of: ColumnsOf) -> IsPersonal:
        """Return which columns of a query are computed from personal data.

        Args:
            query: The query.
            columns_of: See `ColumnsOf`; asked only if a table that it reads, or one that those are computed from, has some.
        """
        return _Search(self, cache(columns_of)).of_query(query)

    def of_table(self, name: str, columns_of: ColumnsOf) -> IsPersonal:
        """Return which columns of a table, given as schema.table or catalog.schema.table, have personal data."""
        return _Search(self, cache(columns_of)).of_table(name)

    def concerned(self, name: str) -> bool:
        """Return whether a table or topic, or anything that it is made of, is declared to have personal data."""
        waiting, seen = [_folded(name)], set[str]()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            for table in self.declared(each):
                if table.personal:
                    return True
                waiting += map(_folded, _read_by(table))
        return False

    def declared(self, name: str) -> Sequence[MarkedTable]:
        """Return the declarations of a table: its own, and those of syncs that write to it."""
        return self._tables.get(_folded(name), ())

    @cached_property
    def _tables(self) -> Mapping[str, Sequence[MarkedTable]]:
        found = dict[str, list[MarkedTable]]()
        for table in self._declared():
            found.setdefault(_folded(table.name), []).append(table)
        return found


@dataclass(frozen=True)
class _Search:
    """Looks at each of the tables once that a query is computed from."""

    tables: PersonalColumns
    columns_of: ColumnsOf
    found: dict[str, IsPersonal] = field(default_factory=dict[str, IsPersonal])

    def of_query(self, query: TableQuery) -> IsPersonal:
        if not any(self.tables.concerned(str(name)) for name in query.inputs):
            return _never
        known, hidden, is_missing = dict[str, list[str]](), set[str](), False
        for name in query.inputs:
            table, columns, is_personal = f"{name.schema}.{name.table}", self.columns_of(name), self.of_table(str(name))
            known.setdefault(table, [LANDING]).extend(columns)
            hidden |= {f"{table}.{column}".casefold() for column in columns if is_personal(column)}
            # A table that is not there may get any column.
            is_missing |= not columns and self.tables.concerned(str(name))
        if not hidden and not is_missing:
            return _never
        sources_of = origins(query, known)

        def is_computed(column: str) -> bool:
            sources = sources_of.get(column.casefold())
            return sources is None or not sources.isdisjoint(hidden)

        return is_computed

    def of_table(self, name: str) -> IsPersonal:
        name = _folded(name)
        if name not in self.found:
            # Of a table that is computed from itself, by way of others, nothing is known meanwhile.
            self.found[name] = _always
            marked = [self._of_declared(table) for table in self.tables.declared(name)]
            self.found[name] = lambda column: any(is_personal(column) for is_personal in marked)
        return self.found[name]

    def _of_declared(self, table: MarkedTable) -> IsPersonal:
        personal = {name.casefold() for name in table.personal}
        free = free_columns(table.columns) - personal
        unknown = {name.casefold() for name in table.unknown}
        named = {name.casefold(): given for name, given in table.named.items()}
        anything = bool(unknown) and any(map(self.tables.concerned, _read_by(table)))
        computed = self.of_query(table.query) if table.query else _never

        def is_personal(column: str) -> bool:
            name = column.casefold()
            if name in personal or name in free:
                return name in personal
            given = named.get(name, name)
            return anything if name in unknown else bool(given) and computed(given)

        return is_personal


def with_marks(columns: Iterable[Column], is_personal: IsPersonal) -> tuple[Column, ...]:
    """Return columns, of which those are marked that have personal data, unless their declaration says otherwise."""
    return tuple(
        replace(column, pii=True) if column.pii is None and is_personal(column.name) else column for column in columns
    )


def free_columns(columns: Iterable[Column]) -> set[str]:
    """Return the columns, folded, that are declared to have no personal data, whatever they are computed from."""
    return {column.name.casefold() for column in columns if column.pii is False}


def _read_by(table: MarkedTable) -> Sequence[str]:
    return [*table.reads, *(str(name) for name in (table.query.inputs if table.query else ()))]


def _folded(name: str) -> str:
    own = f"{catalog_name()}.".casefold()
    return name.casefold().removeprefix(own) if name.count(".") > 1 else name.casefold()


def _never(_: str) -> bool:
    return False


def _always(_: str) -> bool:
    return True
