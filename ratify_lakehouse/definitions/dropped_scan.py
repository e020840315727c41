"""Looks for a data subject in tables that are dropped and can still be undropped: by its value, in all of their columns."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from ratify_lakehouse.catalog.dropped_tables import DroppedTable, DroppedTableCatalog, all_dropped_tables
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions.erasure_plan import Remaining
from ratify_lakehouse.definitions.subject_scan import anywhere, earlier_metadata, in_partitions
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.table_columns import column_names
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.subject_search import HeldIn, holding_files
from ratify_lakehouse.errors import CatalogRejected, RatifyError, TableMissing
from ratify_lakehouse.wording import counted


@dataclass(frozen=True)
class DroppedScan:
    """Looks through dropped tables.

    Attributes:
        catalog: The catalog, as a principal who may undrop them.
        session: Reads their files.
        value: The subject's.
    """

    catalog: UnityCatalog
    session: DuckDBSession
    value: str

    def remaining(self, stored: Iterable[str]) -> Iterable[Remaining]:
        """Yield the dropped tables that have the value, and those that cannot be looked through; also of dropped schemas.

        Args:
            stored: Tables that the catalog has, as schema.table.
        """
        schemas = {name.partition(".")[0] for name in stored}
        # A server without undrop keeps nothing.
        with suppress(CatalogRejected, TableMissing):
            for table in all_dropped_tables(self.catalog, schemas):
                if found := self._found(table):
                    what, why = found
                    named = f"{table.full_name} --id {table.id}"
                    gone = table.full_name.split(".")[1] not in schemas
                    then = (
                        f"{'Create its schema again; then ' if gone else ''}`ratify purge {named}` deletes its files, and "
                        f"`ratify undrop {named}` brings it back, for the next erasure"
                    )
                    until = f"{table.retained_until:%Y-%m-%d %H:%M} UTC" if table.retained_until else "unknown"
                    yield Remaining(table.full_name, what, until, f"{why}. {then}")

    def _found(self, table: DroppedTable) -> tuple[str, str] | None:
        """Return the files of a table that have the value, and why it is named; None if it has none."""
        import duckdb

        try:
            files = self._files(table)
        except TableMissing:
            # Its files were deleted meanwhile.
            return None
        except RatifyError as error:
            return "rows, if there are any", f"dropped, and not searched: {error}"
        except duckdb.Error as error:
            # The message may have values of a row.
            return "rows, if there are any", f"dropped, and not searched: DuckDB cannot read it ({type(error).__name__})"
        return (counted(files, "data file"), "dropped, and has the value") if files else None

    def _files(self, table: DroppedTable) -> int:
        log = DeltaLog(DroppedTableCatalog.of(self.catalog, table), table.full_name, attempts=1, patience=0)
        snapshot = log.refresh()
        names = column_names(snapshot, earlier_metadata(log, snapshot))
        matches = [anywhere(name, type_) for name, type_ in names.types.items() if name not in snapshot.partition_columns]
        files = holding_files(self.session, log, snapshot, names, matches, self.value) if matches else []
        held = [file for file in files if file.kind is not HeldIn.LOG]
        return len(held) or len([*in_partitions(log, snapshot, snapshot.partition_columns, self.value)])
