"""A table that is made equal to a query, whose rows are validated first."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import dagster as dg

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.checks.row_reconciliation import InputRows
from ratify_lakehouse.components.expectations.expectation_checks import check_results
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.components.expectations.validation import rows_failed, validation_result
from ratify_lakehouse.components.keyed_rows import KeyedRows
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.personal_columns import IsPersonal, PersonalColumns, columns_in, with_marks
from ratify_lakehouse.components.query_engines import QueryEngine, RowsToWrite, input_columns
from ratify_lakehouse.components.row_flow import validated_flow
from ratify_lakehouse.components.stored_table import check_stored_columns
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import IDENTIFIER, ROW_TRACKING, Column, Engine, TableDeclaration
from ratify_lakehouse.errors import QueryMismatch, UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.sql.spark_sql import comparable
from ratify_lakehouse.sql.table_query import TableQuery

_RULE = Column("rule", "string", "Names of the expectations that it fails, by comma")
_LOADED = {column.name for column in LOAD_COLUMNS}
_KEYS_ADVICE = "Name the keys that identify a row, or declare under `unique` which of them is the latest."
_ROW_ID_ADVICE = (
    "Name under `reconcile` as row_id the columns that identify a row of the input, of which each gives one row."
)


@dataclass(frozen=True)
class ValidatedQuery:
    """A table, its query, and what its rows are validated by.

    Attributes:
        declaration: The table, with keys; its columns are inferred from the query, but for what is declared of them.
        query: Gives the rows.
        expectations: Of the query's rows.
        intermediate: Columns of the query that only the expectations use.
        reconciled: How its rows are those of an input; None if that is not checked.
        keys: Columns that identify a row of the query, none if there are none; by default those of the table.
        personal: What is known of personal data in the tables that it reads.

    Raises:
        UnsafeDeclaration: the query lacks a key, a declared column, a helper or a column of the row id, or its rows cannot
            be reconciled.
    """

    declaration: TableDeclaration
    query: TableQuery
    expectations: Expectations
    intermediate: tuple[str, ...] = ()
    reconciled: InputRows | None = None
    keys: tuple[str, ...] | None = None
    personal: PersonalColumns = field(default_factory=PersonalColumns, compare=False)

    def __post_init__(self) -> None:
        if self.reconciled:
            self._check_reconciled(self.reconciled)
        if "*" not in self.query.columns:
            self._check_columns(self.query.columns)

    @property
    def row_keys(self) -> tuple[str, ...]:
        """Columns of the query in which no two rows may be equal; none if any may."""
        return self.declaration.keys if self.keys is None else self.keys

    @cached_property
    def quarantine(self) -> TableDeclaration | None:
        """The table of the rows that an expectation quarantines; None without such an expectation."""
        if not self.expectations.named(Action.QUARANTINE):
            return None
        declared = {column.name: column for column in self.declaration.columns}
        row = Column("row", "string", "The row as the query gives it, JSON", pii=bool(self.declaration.personal) or None)
        if self.reconciled:
            keys = self.reconciled.row_id
            columns = [*(replace(declared.get(name, Column(name, "")), nullable=True) for name in keys), _RULE, row]
        else:
            keys = ("row_hash",)
            columns = [
                Column("row_hash", "string", "SHA-256 of the row", pii=row.pii),
                _RULE,
                row,
                Column("rows", "bigint", "How many such rows there are"),
            ]
        return TableDeclaration(
            layer=self.declaration.layer,
            name=f"{self.declaration.name}_quarantine",
            columns=tuple(columns),
            comment=f"Rows of {self.declaration.name} that fail an expectation, with its name",
            writer=self.declaration.writer,
            operations=self.declaration.operations,
            owner=self.declaration.owner,
            keys=keys,
            inferred=any(not column.type for column in columns),
        )

    @property
    def code_version(self) -> str:
        """What changes if and only if the query or what is declared of its rows changes: then all rows are computed."""
        columns = [(column.name, column.type) for column in self.declaration.columns]
        declared = self.expectations.code(self.query.text), columns, self.row_keys
        return hashlib.sha256(repr(declared).encode()).hexdigest()[:16]

    @property
    def written(self) -> tuple[TableDeclaration, ...]:
        """The tables that are written: the table, and its quarantine if it has one."""
        return (self.declaration, *([self.quarantine] if self.quarantine else []))

    def stored(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> TableDeclaration:
        """Return the table with the columns that the query gives.

        Args:
            types: Types of the query's columns by name, in Spark SQL's words.
            lineage: The columns that each is computed from (see `TableQuery.lineage`).

        Raises:
            QueryMismatch: a column is missing, has another type than declared, or one by which no changed row is found.
        """
        self._check_columns(types)
        declared = {column.name: column for column in self.declaration.columns}
        omitted = {*self.intermediate, LANDING}
        columns = [
            replace(typed(self.declaration, declared.get(name, Column(name, "")), type_text), sources=lineage.get(name, ()))
            for name, type_text in types.items()
            if name not in omitted
        ]
        if self.declaration.keys and self.declaration.writer is Engine.SPARK:
            _check_comparable(self.declaration, columns)
        columns += self.added_columns(types, lineage)
        # Where rows of landed files are passed on, a query may read the landing order of the table, which needs row ids.
        passed_on = _LOADED.issubset(column.name for column in columns)
        return _without_row_ids(replace(self.declaration, columns=tuple(columns), inferred=False), wanted=passed_on)

    def added_columns(self, types: Mapping[str, str], lineage: Mapping[str, tuple[str, ...]]) -> Sequence[Column]:
        """Return the columns that the table has beside those of the query; for the arguments see `stored`."""
        return ()

    def query_column(self, name: str) -> str:
        """Return the column of the query that a column of the table has its values from; empty if there is none."""
        return name

    def marked(self, stored: TableDeclaration, is_personal: IsPersonal) -> TableDeclaration:
        """Return the table, as `stored` gives it, with marks of the columns that are computed from personal data."""
        marks = {column.name: self.query_column(column.name) for column in stored.columns}
        columns = with_marks(stored.columns, lambda name: bool(marks[name]) and is_personal(marks[name]))
        return replace(stored, columns=columns)

    def hidden(self, stored: TableDeclaration, types: Iterable[str], is_personal: IsPersonal) -> tuple[str, ...]:
        """Return the columns of the query that have personal data; one that only expectations use may, if another has."""
        personal = stored.personal
        unseen = self.intermediate if personal else tuple(name for name in self.intermediate if is_personal(name))
        return tuple(name for name in types if name in (*personal, *unseen))

    def stored_quarantine(
        self, stored: TableDeclaration, lineage: Mapping[str, tuple[str, ...]], hidden: Collection[str]
    ) -> TableDeclaration | None:
        """Return the quarantine with the columns that it takes from the table, as `marked` gives that."""
        if not self.quarantine:
            return None
        whole = {"pii": True} if hidden else {}
        row = tuple(sorted({source for sources in lineage.values() for source in sources}))
        found = {
            column.name: replace(column, nullable=True) for column in stored.columns if column.name in self.quarantine.keys
        }
        if not self.reconciled:
            found = {"row_hash": replace(self.quarantine.columns[0], **whole)}
        columns = [
            replace(column, sources=row, **whole) if column.name == "row" else found.get(column.name, column)
            for column in self.quarantine.columns
        ]
        return _without_row_ids(replace(self.quarantine, columns=tuple(columns), inferred=False))

    @property
    def _row_id(self) -> tuple[str, ...]:
        return self.reconciled.row_id if self.reconciled else ()

    def _check_reconciled(self, rows: InputRows) -> None:
        for number, name in enumerate(rows.row_id):
            if name in self.intermediate:
                raise UnsafeDeclaration(
                    f"{name!r} is an intermediate column, which the table does not have; rows are found by it: take it from "
                    "`intermediate_columns`.",
                    *("reconcile", "row_id", number),
                )
        for number, rule in enumerate(self.expectations.rules):
            if rule.action is Action.DROP:
                raise UnsafeDeclaration(
                    f"{rule.name} drops rows, which could not be reconciled: they would be nowhere. Quarantine them.",
                    *("expectations", number, "action"),
                )

    def _check_columns(self, found: Sequence[str] | Mapping[str, str]) -> None:
        wanted = [
            *(("a key", name, "keys", number) for number, name in enumerate(self.row_keys)),
            *(("a declared column", column.name, "columns", at) for at, column in enumerate(self.declaration.columns)),
            *(("intermediate", name, "intermediate_columns", number) for number, name in enumerate(self.intermediate)),
            *(("a column of row_id", name, "reconcile", "row_id", number) for number, name in enumerate(self._row_id)),
        ]
        if unsafe := [name for name in found if name and name not in self.intermediate and not IDENTIFIER.fullmatch(name)]:
            text = f"{unsafe[0]!r}, a column of the query, is not a plain identifier: write AS … with letters, digits and _."
            raise UnsafeDeclaration(f"{self.declaration.table_name}: {text}", "sql")
        for what, name, *place in wanted:
            if name not in found:
                raise UnsafeDeclaration(
                    f"{self.declaration.table_name}: {name!r} is {what}, but not a column of the query, which returns "
                    f"{', '.join(found)}.",
                    *place,
                )


def _check_comparable(declaration: TableDeclaration, columns: Sequence[Column]) -> None:
    for column in columns:
        if not comparable(column.type):
            raise QueryMismatch(
                f"{declaration.table_name}, column {column.name}: the query returns {column.type}, and Spark compares no "
                f"maps, by which it would find the rows that changed. Write map_entries(…) AS {column.name}, or "
                f"to_json(…) AS {column.name}, in the query; or choose DuckDB, or the strategy append or append_by_period."
            )


def _without_row_ids(declaration: TableDeclaration, *, wanted: bool = False) -> TableDeclaration:
    """Return a table that Spark creates without row tracking, unless it is wanted or declared."""
    if wanted or declaration.writer is not Engine.SPARK:
        return declaration
    return replace(declaration, properties={ROW_TRACKING: "false", **declaration.properties})


def typed(declaration: TableDeclaration, column: Column, found: str) -> Column:
    """Return a column with the type that the query gives it.

    Raises:
        QueryMismatch: another type is declared.
    """
    if column.type and sql_type(column.type).spark != sql_type(found).spark:
        raise QueryMismatch(
            f"{declaration.table_name}, column {column.name}: its declared type is {column.type}, but the query returns "
            f"{found}; write CAST(… AS {column.type.upper()}) AS {column.name} in the query, or declare {found}."
        )
    return replace(column, type=found)


@dataclass(frozen=True)
class ResolvedQuery:
    """A query whose tables and columns are known.

    Attributes:
        text: For the engine.
        types: Types of its columns by name, in Spark SQL's words.
        declaration: The table, with the columns that the query gives.
        quarantine: Likewise, if it has one.
        hidden: The columns that have personal data.
    """

    text: str
    types: Mapping[str, str]
    declaration: TableDeclaration
    quarantine: TableDeclaration | None
    hidden: tuple[str, ...] = ()


def resolve(engine: QueryEngine, table: ValidatedQuery) -> ResolvedQuery:
    """Find the query's tables in the catalog, and its columns; nothing is computed.

    Raises:
        QueryMismatch: the query gives other columns than declared, or than the table has.
        TableMissing: an input does not exist.
    """
    known = input_columns(engine.catalog, table.query)
    text, types = engine.typed(table.query.resolved(lambda name: engine.relation(table.query, name, known[name])))
    lineage = table.query.lineage({str(name): [*columns, LANDING] for name, columns in known.items()})
    is_personal = table.personal.of_query(table.query, columns_in(engine.catalog))
    declaration = table.marked(table.stored(types, lineage), is_personal)
    hidden = table.hidden(declaration, types, is_personal)
    quarantine = table.stored_quarantine(declaration, lineage, hidden)
    for written in (declaration, *([quarantine] if quarantine else [])):
        check_stored_columns(engine.catalog, written)
    return ResolvedQuery(text, types, declaration, quarantine, hidden)


def materialize(engine: QueryEngine, table: ValidatedQuery) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Make the tables equal to the query's rows that pass, and to those in quarantine; yield the results of all.

    Raises:
        QueryMismatch: the query gives other columns than declared, or several rows with the same keys; nothing was written.
        ExpectationFailed: rows fail an expectation whose action is to fail; nothing was written.
        TableMissing: an input does not exist.
        CommitConflict: other writers won every attempt.
    """
    resolved = resolve(engine, table)
    declaration, quarantine, types = resolved.declaration, resolved.quarantine, resolved.types
    computed = engine.to_compute(resolved.text, declaration)
    with engine.validated(replace(table.expectations, personal=resolved.hidden).validated(computed)) as rows:
        accepted, quarantined = split_rows(table, types)
        keyed = list[KeyedRows]()
        if table.row_keys and not table.expectations.unique:
            keyed.append(KeyedRows(engine.dialect, declaration, table.row_keys, accepted, _KEYS_ADVICE))
        if table.reconciled and quarantine:
            keyed.append(KeyedRows(engine.dialect, quarantine, quarantine.keys, quarantined, _ROW_ID_ADVICE))
        # In one query: an engine may take longer to begin one than to count.
        doubled = (f", ({each.doubled}) AS doubled_{number}" for number, each in enumerate(keyed))
        text = f"SELECT counted.*{''.join(doubled)} FROM ({table.expectations.counted('{rows}')}) AS counted"
        counted = next(iter(rows.records(text)), {})
        found, key = validation_result(counted), asset_key(declaration)
        if failed := [name for name in table.expectations.named(Action.FAIL) if found.failed.get(name)]:
            yield from check_results(table.expectations, key, found)
            raise rows_failed(declaration.table_name, failed, counted)
        for number, each in enumerate(keyed):
            if counted.get(f"doubled_{number}"):
                raise each.mismatch(rows.records)
        written = [RowsToWrite(declaration, accepted, found.accepted)]
        if quarantine:
            written.append(RowsToWrite(quarantine, quarantined, found.sum_of(table.expectations, Action.QUARANTINE)))
        yield from rows.write(written, **validated_flow(table.expectations, found))
        failing_stored = rows.failing_stored(table.expectations, [each.declaration for each in written])
    yield from check_results(table.expectations, key, found, failing_stored)


def split_rows(table: ValidatedQuery, types: Iterable[str]) -> tuple[str, str]:
    """Return the queries that give the rows of the table, and those of its quarantine; both are over `{rows}`.

    Args:
        table: The table and its quarantine.
        types: The query's columns.
    """
    expectations, sql = table.expectations, table.expectations.dialect
    columns = sql.listed(name for name in types if name not in {*table.intermediate, LANDING})
    accepted = f"SELECT {columns} FROM {{rows}} WHERE {expectations.accepted()}"
    row = f"{sql.json_of(name for name in types if name != LANDING)} AS row"
    rule = sql.joined.format("failed", "', '") + " AS rule"
    if table.reconciled:
        row_id = sql.listed(table.reconciled.row_id)
        return accepted, f"SELECT {row_id}, {rule}, {row} FROM {{rows}} WHERE {expectations.quarantined()}"
    each = f"SELECT {row}, failed FROM {{rows}} WHERE {expectations.quarantined()}"
    row_hash = f"{sql.sha256.format('row')} AS row_hash"
    return accepted, f"SELECT {row_hash}, {rule}, row, count(*) AS rows FROM ({each}) GROUP BY ALL"
