"""Looks for a data subject in one table: by the columns that identify it, and by its value in columns of no declaration."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import is_append_only
from ratify_lakehouse.definitions.erasure_plan import TableHolding
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.expired_log import log_seconds
from ratify_lakehouse.delta.maintenance_rules import Maintenance, maintenance_rules
from ratify_lakehouse.delta.snapshot import Json, Snapshot
from ratify_lakehouse.delta.table_clean import deleted_file_seconds
from ratify_lakehouse.delta.table_columns import ColumnNames, column_names, has_mapping
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.duckdb.subject_search import HeldIn, holding_files, matching_rows
from ratify_lakehouse.errors import CatalogDenied, LogUnreadable, StorageUnavailable, TableMissing, UnsafeTable
from ratify_lakehouse.sql.subject_match import Match


@dataclass(frozen=True)
class SubjectScan:
    """Looks for a data subject.

    Attributes:
        catalog: The catalog.
        duckdb: Has the logs of the tables.
        session: Reads them.
        value: The subject's.
    """

    catalog: UnityCatalog
    duckdb: DuckDB
    session: DuckDBSession
    value: str

    def holdings(
        self, full_name: str, matches: Sequence[Match], undeclared: Collection[str] = (), more: Sequence[Match] = ()
    ) -> list[TableHolding]:
        """Return what a table has: by the matches, and by the value alone; nothing of a table that is missing.

        A table that cannot be looked through says so.

        Args:
            full_name: The table.
            matches: How rows of the subject are known.
            undeclared: Columns in which the value is looked for.
            more: Further ways, by the value alone.

        Raises:
            CatalogUnavailable, CatalogBusy.
        """
        import duckdb

        try:
            return list(self._found(full_name, matches, undeclared, more))
        except TableMissing:
            return []
        except (CatalogDenied, LogUnreadable, StorageUnavailable, UnsafeTable) as error:
            reason = str(error)
        except duckdb.Error as error:
            # What a row has may be in the message.
            reason = f"DuckDB cannot read it ({type(error).__name__})"
        return [TableHolding(full_name, matches, refused=reason, stays=[reason], unsearched=reason)]

    def _found(
        self, full_name: str, matches: Sequence[Match], undeclared: Collection[str], more: Sequence[Match]
    ) -> Iterable[TableHolding]:
        log = self.duckdb.log(full_name)
        snapshot = log.refresh()
        names = column_names(snapshot, earlier_metadata(log, snapshot))
        present = [replace(match, column=name) for match in matches if (name := names.present(match.column))]
        if present:
            yield self._by_matches(log, snapshot, names, present)
        # A column that is not in the table, as one that only expectations read, identifies nobody there.
        wanted = {name.casefold() for name in (names.types if matches and not present else undeclared)}
        wanted -= {match.column.casefold() for match in present if not match.name}
        by_value = [*more, *(anywhere(name, type_) for name, type_ in names.types.items() if name.casefold() in wanted)]
        if by_value:
            yield from self._by_value(log, snapshot, names, by_value)

    def _by_matches(self, log: DeltaLog, snapshot: Snapshot, names: ColumnNames, matches: Sequence[Match]) -> TableHolding:
        holding = TableHolding(snapshot.full_name, matches)
        if partitioned := [match.column for match in matches if match.column in snapshot.partition_columns]:
            text = f"it is partitioned by {partitioned[0]}, so the names of its folders contain the value."
            rows = sum(in_partitions(log, snapshot, partitioned, self.value))
            return replace(holding, refused=text, stays=[text], matched=rows, unsearched="" if rows else text)
        files = holding_files(self.session, log, snapshot, names, matches, self.value)
        live = {file.path for file in files if file.kind is HeldIn.LIVE}
        rows = sum(file.rows or 0 for file in log.files(snapshot))
        matched = matching_rows(self.session, log, snapshot, live, matches, self.value)
        return replace(
            self._with_rules(holding, snapshot), version=snapshot.version, rows=rows, matched=matched, files=files
        )

    def _by_value(
        self, log: DeltaLog, snapshot: Snapshot, names: ColumnNames, matches: Sequence[Match]
    ) -> Iterable[TableHolding]:
        divided = [match.column for match in matches if match.column in snapshot.partition_columns]
        of_partitions = sum(in_partitions(log, snapshot, divided, self.value))
        inside = [match for match in matches if match.column not in divided]
        files = holding_files(self.session, log, snapshot, names, inside, self.value) if inside else []
        live = {file.path for file in files if file.kind is HeldIn.LIVE}
        matched = {match: matching_rows(self.session, log, snapshot, live, [match], self.value) for match in inside if live}
        having = [match for match, rows in matched.items() if rows]
        rows = matching_rows(self.session, log, snapshot, live, having, self.value) if having else 0
        having += [Match(column) for column in divided] if of_partitions else []
        if having or any(file.kind is not HeldIn.LOG for file in files):
            found = TableHolding(snapshot.full_name, having or inside, snapshot.version, files=files, undeclared=True)
            total = sum(file.rows or 0 for file in log.files(snapshot))
            yield replace(self._with_rules(found, snapshot), rows=total, matched=rows + of_partitions)

    def _with_rules(self, holding: TableHolding, snapshot: Snapshot) -> TableHolding:
        """Add what the table allows, and for how long it keeps what is deleted."""
        stays, retained_s = list[str](), 0
        rules = maintenance_rules(self.catalog, holding.full_name).rules
        for rule in (rules[Maintenance.COMPACT], rules[Maintenance.CLEAN]):
            if not rule.allowed:
                stays.append(f"{rule.operation} is not allowed. {rule.reason} Instead: {rule.by}")
        try:
            retained_s = deleted_file_seconds(snapshot)
        except UnsafeTable as error:
            stays.append(str(error))
        append_only = is_append_only(snapshot.properties)
        refused = "it only allows appends (delta.appendOnly): switch that off first." if append_only else ""
        log_s = 0
        with suppress(UnsafeTable):
            log_s = log_seconds(snapshot) or 0
        return replace(holding, retained_s=retained_s, log_retained_s=log_s, refused=refused, stays=stays)


def earlier_metadata(log: DeltaLog, snapshot: Snapshot) -> Iterable[Json]:
    """Yield the `metaData` actions of a table with column mapping: without it, no column has another name than it had."""
    if not has_mapping(snapshot):
        return
    for version in range(snapshot.version, -1, -1):
        try:
            yield from (action["metaData"] for action in log.actions(version) if "metaData" in action)
        except FileNotFoundError:
            return


def anywhere(name: str, type_: object) -> Match:
    """Return how a row is known by the value alone, as a whole or as a part of what a column has."""
    text = type_ in ("string", "binary")
    nested = not isinstance(type_, str)
    return Match(name, anywhere=text or nested, binary=type_ == "binary", nested=nested)


def in_partitions(log: DeltaLog, snapshot: Snapshot, columns: Collection[str], value: str) -> Iterable[int]:
    """Yield how many rows each file of a partition has whose value is the subject's."""
    for file in log.files(snapshot) if columns else ():
        values: Json = file.add["partitionValues"]
        if any(values.get(column) == value for column in columns):
            yield file.rows or 0
