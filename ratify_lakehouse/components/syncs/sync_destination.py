"""The table that a sync writes to, as the catalog and an engine know it."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.syncs.converted_rows import ConvertedColumn
from ratify_lakehouse.components.syncs.sync_declaration import MappedColumn, SyncDeclaration, SyncStrategy
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import SyncRefused, TableMissing, UnsafeDeclaration
from ratify_lakehouse.sql.row_history import CURRENT, VALID_FROM, VALID_TO
from ratify_lakehouse.sql.spark_sql import table_name

# Columns of the destination of a sync of the strategy scd2, which its source does not give.
_HISTORY_TYPES = {VALID_FROM: "timestamp", VALID_TO: "timestamp", CURRENT: "boolean"}
_TIMES = ("date", "timestamp", "timestamp_ntz", "string")
_CONSTRAINT = "delta.constraints."
# Texts of a length, which Spark checks when it writes, and shows as `string`.
_OF_LENGTH = re.compile(r"(?:var)?char\((\d+)\)", re.IGNORECASE)
_DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True)
class SyncDestination:
    """The table that a sync writes to.

    Attributes:
        table: The table with those of its columns that the sync writes, and its keys.
        columns: Those of them that come from the source.
        others: Columns of the table that the sync does not write: they are NULL in the rows that it inserts.
        version: The table's version; -1 where it does not exist yet.
        table_id: The table's id; another one after it was dropped and created again. Empty where it does not exist yet.
        checks: Its constraints by their names, as far as they are about columns that the sync writes.
    """

    table: TableDeclaration
    columns: Sequence[ConvertedColumn]
    others: Sequence[str]
    version: int
    table_id: str = ""
    checks: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def exists(self) -> bool:
        """Whether the table is there."""
        return self.version >= 0

    def column(self, name: str) -> str:
        """Return the name of a column as the table has it; names ignore case."""
        return next(column.name for column in self.columns if column.name.casefold() == name.casefold())


def find_destination(spark: Spark, sync: SyncDeclaration, given: Mapping[str, str]) -> SyncDestination:
    """Return the table that a sync writes to; nothing is created.

    Args:
        spark: The session.
        sync: The sync.
        given: Types of the source's columns by name, in Spark SQL's words.

    Raises:
        SyncRefused: the table lacks columns, needs others, has column mapping, or its key is not a column; or what says
            since when a row is as it is, is not a time.
        TableMissing: it does not exist, and is not to be created.
        UnsafeDeclaration: it is to be created with a column that not every engine can read.
    """

    def described(full_name: str) -> tuple[Sequence[Column], int]:
        version = spark.catalog.version(full_name)
        fields = spark.session.table(table_name(full_name)).schema.fields
        return [
            Column(each.name, each.metadata.get(_DECLARED_TYPE) or each.dataType.simpleString(), nullable=each.nullable)
            for each in fields
        ], version

    return described_destination(sync, given, spark.catalog, described)


def described_destination(
    sync: SyncDeclaration,
    given: Mapping[str, str],
    catalog: UnityCatalog,
    described: Callable[[str], tuple[Sequence[Column], int]],
) -> SyncDestination:
    """Return the table that a sync writes to; nothing is created.

    Args:
        sync: The sync.
        given: As for `find_destination`.
        catalog: Has the table.
        described: Returns the columns and the version of a table that exists, by its full name.

    Raises:
        As `find_destination`.
    """
    full_name = sync.destination.full_name(catalog.connection.name)
    try:
        found = catalog.table(full_name)
    except TableMissing:
        if not sync.create_if_missing:
            raise missing_destination(sync, full_name) from None
        return new_destination(sync, given, catalog)
    fields, version = described(full_name)
    partitions = [column.name or "" for column in found.columns or [] if column.partition_index is not None]
    properties = found.properties or {}
    fitting = fitting_destination(sync, given, catalog, full_name, fields, properties, version, partitions)
    return replace(fitting, table_id=found.table_id or "")


def missing_destination(sync: SyncDeclaration, full_name: str) -> TableMissing:
    """Return the error for a destination that does not exist, and is not to be created."""
    return TableMissing(
        f"{full_name}, the destination of the sync {sync.name}, does not exist. Create it, or let the sync do so by "
        "`create_if_missing: true`."
    )


def fitting_destination(
    sync: SyncDeclaration,
    given: Mapping[str, str],
    catalog: UnityCatalog,
    full_name: str,
    fields: Sequence[Column],
    properties: Mapping[str, str],
    version: int,
    partitions: Collection[str] = (),
) -> SyncDestination:
    """Return a table that exists as the destination of a sync.

    Args:
        sync: The sync.
        given: Types of the source's columns by name.
        catalog: Has the tables that the source reads.
        full_name: Of the table.
        fields: All of its columns.
        properties: Its properties.
        version: Its version.
        partitions: Columns by which it is partitioned.

    Raises:
        As `find_destination`.
    """
    mapped = _mapped(sync, given, catalog)
    if (mapping := properties.get("delta.columnMapping.mode", "none")) != "none":
        raise SyncRefused(
            f"{full_name} has column mapping ({mapping}), with which engines write columns that others read as NULL. Sync "
            "to a table with delta.columnMapping.mode = none."
        )
    own = _HISTORY_TYPES if sync.strategy is SyncStrategy.SCD2 else {}
    there = {each.name.casefold(): each for each in fields}
    if missing := [column.name for column in mapped if column.name.casefold() not in there] + [
        name for name in own if name not in there
    ]:
        raise SyncRefused(
            f"{full_name} has no column {missing[0]}; it has {', '.join(each.name for each in fields)}. Add the column to "
            "the table, or leave it out under `columns`."
        )
    columns = [
        ConvertedColumn(
            name=(found := there[column.name.casefold()]).name,
            type="string" if (length := _OF_LENGTH.fullmatch(found.type)) else found.type,
            source=column.source,
            source_type=given[column.source],
            nullable=found.nullable,
            cast=bool(column.cast),
            pii=bool(column.pii),
            partition=found.name in partitions,
            length=int(length[1]) if length else 0,
        )
        for column in mapped
    ]
    written = {column.name for column in columns} | set(own)
    others = [each for each in fields if each.name not in written]
    if needed := [each.name for each in others if not each.nullable]:
        raise SyncRefused(f"{full_name} needs {needed[0]}, which is NOT NULL, and the source has no column for it.")
    checks = {
        name.removeprefix(_CONSTRAINT): text
        for name, text in properties.items()
        if name.startswith(_CONSTRAINT) and _columns_of(text) <= {column.name.casefold() for column in columns}
    }
    return SyncDestination(_table(sync, columns), columns, [each.name for each in others], version, checks=checks)


def _columns_of(constraint: str) -> set[str]:
    """The columns that a constraint is about; an empty name if that is not known, so that only the engine checks it."""
    try:
        parsed = sqlglot.parse_one(constraint, dialect="databricks")
    except SqlglotError:
        return {""}
    return {column.parts[0].name.casefold() for column in parsed.find_all(exp.Column)}


def _mapped(sync: SyncDeclaration, given: Mapping[str, str], catalog: UnityCatalog) -> list[MappedColumn]:
    """The columns that the source gives, by the names that it has for them.

    Raises:
        SyncRefused: it lacks one, or two would be one column.
    """
    names, wanted = {name.casefold(): name for name in given}, [column.source for column in sync.columns]
    if sync.events:
        wanted.append(sync.events.operation)
    for name in wanted:
        if name.casefold() not in names:
            raise SyncRefused(f"The source of the sync {sync.name} has no column {name}, only {', '.join(given)}.")
    mapped = sync.mapped(given)
    found = [column.name.casefold() for column in mapped]
    if doubled := next((name for name in found if found.count(name) > 1), None):
        raise SyncRefused(
            f"Two columns of the source of the sync {sync.name} would be {doubled}: rename one under `columns`."
        )
    needed = [
        *(("the key", name) for name in sync.keys),
        *(("the column of unique.latest", name) for name in sync.latest),
        *(("the column of scope", name) for name in sync.guards.scope),
        *([("the sequence", sync.events.sequence_by)] if sync.events else []),
        *([("the column of updated_at", sync.history.updated_at)] if sync.history.updated_at else []),
    ]
    for what, name in needed:
        if name.casefold() not in found:
            raise SyncRefused(f"{name}, {what} of the sync {sync.name}, is not written: the source has {', '.join(found)}.")
    is_personal = sync.personal_in(catalog)

    def pii(column: MappedColumn) -> bool:
        return is_personal(column.source) if column.pii is None else column.pii

    return [MappedColumn(column.name, names[column.source.casefold()], column.cast, pii(column)) for column in mapped]


def new_destination(sync: SyncDeclaration, given: Mapping[str, str], catalog: UnityCatalog) -> SyncDestination:
    """Return the destination of a sync that does not exist yet.

    Raises:
        As `find_destination`.
    """
    columns = [
        ConvertedColumn(
            name=column.name,
            type=sql_type(column.cast or given[column.source]).spark,
            source=column.source,
            source_type=given[column.source],
            cast=bool(column.cast),
            pii=bool(column.pii),
        )
        for column in _mapped(sync, given, catalog)
    ]
    return SyncDestination(_table(sync, columns), columns, [], -1)


def _check_dates(sync: SyncDeclaration, columns: Sequence[ConvertedColumn]) -> None:
    """Check that what says since when a row is as it is, is a time: a history compares it with times.

    Raises:
        SyncRefused: it is none.
    """
    for column in columns:
        dates = column.name.casefold() == sync.history.updated_at.casefold()
        if dates and column.type.lower() not in _TIMES:
            raise SyncRefused(
                f"{column.name}, the column of updated_at of the sync {sync.name}, is a {column.type} in "
                f"{sync.destination}, which is not a time. Name a column that is a DATE or a TIMESTAMP there."
            )


def _table(sync: SyncDeclaration, columns: Sequence[ConvertedColumn]) -> TableDeclaration:
    _check_dates(sync, columns)
    own = _HISTORY_TYPES if sync.strategy is SyncStrategy.SCD2 else {}
    by_name = {column.name.casefold(): column.name for column in columns}
    keys = [by_name[key.casefold()] for key in sync.keys] + ([VALID_FROM] if own else [])
    try:
        return replace(
            sync.table,
            columns=(
                *(Column(column.name, column.type, nullable=column.nullable, pii=column.pii) for column in columns),
                *(Column(name, type_text) for name, type_text in own.items()),
            ),
            keys=tuple(keys),
            inferred=False,
        )
    except UnsafeDeclaration as error:
        raise UnsafeDeclaration(
            f"{error} Cast it to such a type under `columns` of the sync {sync.name}."
            if "type" in str(error)
            else str(error),
            *error.field,
        ) from None
