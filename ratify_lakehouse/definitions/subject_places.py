"""The tables of the project, as far as they tell where rows of a subject are, and what else may have something of it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ratify_lakehouse.components.feeds.tenant_tables_component import TenantTables
from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.query_component import QueryComponent
from ratify_lakehouse.components.stream.event_stream import CORRECTED
from ratify_lakehouse.components.stream_table_component import StreamTable
from ratify_lakehouse.components.subject_columns import ROW, SubjectColumns, SubjectTable, computed_table, subject_columns
from ratify_lakehouse.components.sync_component import Sync
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.deleted_keys import deleted_keys_table
from ratify_lakehouse.components.syncs.written_keys import written_keys_table
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.definitions.erasure_plan import Remaining
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.sql.table_query import TableQuery

ColumnsOf = Callable[[str], Sequence[str]]
"""Returns the columns of a table, given as schema.table or catalog.schema.table; none if it does not exist."""

_SYNC = "sync "
_QUARANTINE = "_quarantine"


def subject_tables(tables: DeclaredTables, columns_of: ColumnsOf, stored: Collection[str] = ()) -> list[SubjectTable]:
    """Return what tells where subjects are: declared tables, and the sources, destinations and kept keys of syncs.

    Args:
        tables: The project's.
        columns_of: Returns the columns of a table.
        stored: Tables that the catalog has: of a declared one, the quarantine that it had before is among the results.
    """
    records = {table.declaration.table_name: table.declaration.subjects for table in tables.record_tables}
    found = [each for component in tables.components.values() for each in _of_component(component, columns_of, records)]
    written = {table.name.casefold() for table in found}
    for sync in tables.syncs.values():
        source, destination = _of_sync(sync, columns_of)
        found += [source, *([] if destination.name.casefold() in written else [destination])]
        found += _keys_of(sync, destination, columns_of)
    names = {table.name.casefold(): table.name for table in found}
    for name in stored:
        main = names.get(name.removesuffix(_QUARANTINE).casefold())
        if main and name.casefold() not in names and ROW in columns_of(name):
            found.append(SubjectTable(name, rows_of=main))
    return found


def recorded_table(
    name: str, columns: Iterable[str], inputs: Iterable[str], columns_of: Callable[[str], Sequence[str]]
) -> SubjectTable:
    """Return a table of no declaration, of which commits record what it was computed from: it has its columns from there.

    Args:
        name: As schema.table.
        columns: That it has.
        inputs: What its commits record, as schema.table.
        columns_of: Returns the columns of a table; none if it does not exist.
    """
    known = {each: {column.casefold() for column in columns_of(each)} for each in inputs}
    lineage = {column: [f"{each}.{column}" for each, has in known.items() if column.casefold() in has] for column in columns}
    return SubjectTable(name, (), lineage, [column for column, sources in lineage.items() if sources])


def places_of_subjects(
    found: Sequence[SubjectTable], kind: str, letters: Mapping[str, Collection[str]] | None = None
) -> SubjectColumns:
    """Return where subjects of a kind are found: in tables, and in the dead letters of syncs.

    Args:
        found: See `subject_tables`.
        kind: Of the subjects.
        letters: The tables that dead letters were read from, as schema.table, by syncs that are not declared any more.
    """
    columns = subject_columns(found, kind)
    matches = {name: ways for name, ways in columns.matches.items() if not name.startswith(_SYNC)}
    of_syncs = [
        replace(way, column=ROW, name=way.column, sync=name.removeprefix(_SYNC))
        for name, ways in columns.matches.items()
        if name.startswith(_SYNC)
        for way in ways
    ]
    by_name = {name.casefold(): ways for name, ways in matches.items()}
    of_syncs += [
        Match(ROW, way.column, sync=sync)
        for sync, inputs in (letters or {}).items()
        for name in inputs
        for way in by_name.get(name.casefold(), ())
        if not way.name
    ]
    if of_syncs:
        matches[DEAD_LETTERS.table_name] = of_syncs
    unfound = {name: why for name, why in columns.unfound.items() if not name.startswith(_SYNC)}
    return SubjectColumns(matches, unfound, {*columns.set_aside, DEAD_LETTERS.table_name})


def other_places(tables: DeclaredTables, found: SubjectColumns) -> list[Remaining]:
    """Return what is not searched, though something of a subject may be there."""
    concerned = {name.casefold() for name in (*found.matches, *found.unfound)}
    others = [*_of_streams(tables, concerned, found)]
    for name, component in tables.components.items():
        if name.casefold() not in concerned:
            continue
        if isinstance(component, StreamTable):
            why = "offsets and versions only, no rows"
            others.append(Remaining(f"checkpoint of the stream {name}", "nothing of a subject", "-", why))
        if isinstance(component, FlinkSql):
            why = "Flink keeps rows in its state"
            others.append(Remaining(f"state of the job {name}", "rows", "a run with full_refresh: true", why))
    for sync in tables.syncs.values():
        if sync.source.file:
            why = "files of others are not searched"
            others.append(Remaining(f"sync {sync.sync.name}", f"files {sync.source.file}", "unknown", why))
    why = "Spark keeps files of shuffles as long as it runs"
    return [*others, Remaining("RATIFY_HOME/spark/tmp", "temporary files of Spark", "`ratify down`", why)]


def _of_streams(tables: DeclaredTables, concerned: Collection[str], found: SubjectColumns) -> Iterable[Remaining]:
    for table in tables.record_tables:
        if table.declaration.table_name.casefold() in concerned:
            topics = ", ".join(table.source.topics) or "the topics of its runs"
            until = "the retention of the topic"
            yield Remaining(f"Kafka: {topics}", "records", until, "Kafka deletes no single records")
            is_searched = table.declaration.table_name in found.matches
            if not is_searched and (folder := table.source.events.files):
                why = "files of records are searched where their table says where its `subjects` are"
                yield Remaining(folder, f"files of {table.declaration.table_name}", "they are deleted by hand", why)
    for feed in tables.topic_feeds:
        if str(feed.followed).casefold() in concerned:
            why = "Kafka deletes no single records; the deletion is published as well"
            yield Remaining(f"Kafka: {feed.topic}", "changes", "the retention of the topic", why)


def _of_component(
    component: TableComponent, columns_of: ColumnsOf, records: Mapping[str, Mapping[str, Sequence[Match]]]
) -> Iterable[SubjectTable]:
    written = list(component.written)
    names = {table.table_name for table in written}
    queries = (
        {each.declaration.table_name: each.query for each in component.tables} if isinstance(component, TenantTables) else {}
    )
    for table in written:
        name, columns = table.table_name, _with_known(table, columns_of)
        main = name.removesuffix(_QUARANTINE)
        query = queries.get(name) or (component.query if isinstance(component, QueryComponent) else None)
        if main != name and main in names:
            if ROW in table.column_names:
                yield SubjectTable(name, rows_of=main)
            else:
                lineage = {each.name: each.sources for each in table.columns if each.sources}
                yield SubjectTable(name, columns, lineage, fields=_of_quarantined(component, records), set_aside=True)
        elif query:
            computed = _computed(name, columns, query, columns_of)
            yield computed if table.inferred else _with_columns(computed)
        else:
            yield SubjectTable(name, columns, fields=table.subjects)


def _with_columns(table: SubjectTable) -> SubjectTable:
    """A table that has not all columns of its query, as that of a stream."""
    names = {column.name.casefold() for column in table.columns}
    lineage = {name: sources for name, sources in table.lineage.items() if name.casefold() in names}
    return replace(table, lineage=lineage, passed_on=[name for name in table.passed_on if name.casefold() in names])


def _of_quarantined(
    component: TableComponent, records: Mapping[str, Mapping[str, Sequence[Match]]]
) -> Mapping[str, Sequence[Match]]:
    """How rows of subjects are known in the quarantine of a stream: it has the records, and values that correct theirs."""
    subjects = records.get(component.stream.records.table_name, {}) if isinstance(component, StreamTable) else {}
    return {
        kind: [*ways, *(replace(way, column=CORRECTED) for way in ways if way.column == "value")]
        for kind, ways in subjects.items()
    }


def _of_sync(sync: Sync, columns_of: ColumnsOf) -> tuple[SubjectTable, SubjectTable]:
    """The rows of its source, as dead letters have them, and its destination."""
    declared = sync.sync
    name = f"{_SYNC}{declared.name}"
    source = _computed(name, (), declared.source.query, columns_of) if declared.source.query else SubjectTable(name)
    renamed = {column.source.casefold(): column.name for column in declared.columns}
    lineage = {renamed.get(column.casefold(), column): sources for column, sources in source.lineage.items()}
    passed_on = [renamed.get(column.casefold(), column) for column in source.passed_on]
    marks = [Column(column.name, "", pii=column.pii) for column in declared.columns]
    return source, SubjectTable(str(declared.destination), marks, lineage, passed_on)


def _keys_of(sync: Sync, destination: SubjectTable, columns_of: ColumnsOf) -> Iterable[SubjectTable]:
    """The tables with keys of rows that a sync has written or deleted, as far as they exist."""
    for name in (written_keys_table(sync.sync.name), deleted_keys_table(sync.sync.name)):
        table = f"{DEAD_LETTERS.layer}.{name}"
        if columns_of(table):
            keys = {key: [f"{destination.name}.{key}"] for key in sync.sync.keys}
            yield SubjectTable(table, (), keys, list(keys))


def _computed(name: str, columns: Sequence[Column], query: TableQuery, columns_of: ColumnsOf) -> SubjectTable:
    return computed_table(name, columns, query, {each: columns_of(str(each)) for each in query.inputs})


def _with_known(table: TableDeclaration, columns_of: ColumnsOf) -> Sequence[Column]:
    known: Collection[str] = {column.name.casefold() for column in table.columns}
    return [*table.columns, *(Column(n, "") for n in columns_of(table.table_name) if n.casefold() not in known)]
