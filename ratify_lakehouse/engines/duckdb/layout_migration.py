"""The files of a table written again in another layout, by one commit that changes no row.

The commit has all files, the partition columns and the clustering, with `dataChange` false: streams and change feeds skip
it. The way back is the same with the layout before. A killed run leaves the table as it was; `ratify clean` finds its files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.commit_actions import Committed, NothingToCommit, Proposal
from ratify_lakehouse.delta.compaction_bins import TARGET_BYTES
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.layout_change import layout_changed, layout_of
from ratify_lakehouse.delta.maintenance_rules import Maintenance, Manager, maintenance_rules
from ratify_lakehouse.delta.snapshot import DataFile, LiveFile, Snapshot
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.live_rows import FILE, LiveRows, live_rows
from ratify_lakehouse.engines.duckdb.parquet_files import put_data_file, write_parquet
from ratify_lakehouse.engines.duckdb.row_order import RowOrder
from ratify_lakehouse.errors import NOTHING_COMMITTED, UnsafeDeclaration, UnsafeTable
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.partition_values import IN_DUCKDB, unusable
from ratify_lakehouse.table_layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

_ROWS, _VALUES = "ratify_moved_rows", "ratify_partition_values"
_MOST_PARTITIONS = 10_000


@dataclass(frozen=True)
class Migrated:
    """A change of layout: its version, the files before and after, rows, and the number of attempts."""

    version: int
    files: int
    new_files: int
    rows: int
    attempts: int


def migrate(
    session: DuckDBSession,
    catalog: UnityCatalog,
    log: DeltaLog,
    full_name: str,
    layout: Layout,
    *,
    target_bytes: int = TARGET_BYTES,
) -> Migrated | None:
    """Give a table another layout, and return the commit; None if it has that layout already.

    Args:
        session: Its memory limit bounds what is in memory; beyond it, rows are sorted on disk.
        catalog: The table's catalog.
        log: The table's log.
        full_name: The table.
        layout: The new one.
        target_bytes: About the size of the new files.

    Raises:
        UnsafeTable: the catalog does not permit it; the table has an unsupported feature, cannot have the layout, or would
            have other rows or too many partitions; one of its files is missing or damaged.
        CommitConflict: other writers won every attempt; nothing was committed.
        Whatever `live_rows` and `DeltaLog.commit` raise.
    """
    _require_permission(catalog, full_name)
    with scratch_folder(session.home) as folder:
        migration = _Migration(session, log, layout, target_bytes, folder)
        try:
            committed = log.commit(migration.proposal, partitioned=True)
        except NothingToCommit:
            return None
        except NOTHING_COMMITTED:
            # After any other error, a ratified commit may name the files.
            migration.withdraw()
            raise
        return migration.done(committed)


def _require_permission(catalog: UnityCatalog, full_name: str) -> None:
    rules = maintenance_rules(catalog, full_name)
    rule = rules.rules[Maintenance.COMPACT]
    if not rule.allowed or rules.manager is not Manager.EMBEDDED:
        raise UnsafeTable(
            f"{full_name}: its layout cannot be changed from here. {rule.reason} Instead: CREATE OR REPLACE TABLE … AS "
            f"SELECT * FROM {full_name} in Spark. That is a change of rows: streams that read the table stop, and its "
            "change data feed reports each of them."
        )


@dataclass(frozen=True)
class _Batch:
    """Files that were read together, with their rows, and all of those that have these rows now."""

    counted: Mapping[tuple[str, str], int]
    written: tuple[DataFile, ...]


class _Migration:
    """Files are written again once, however often the commit is tried, unless another writer removes one of them."""

    def __init__(self, session: DuckDBSession, log: DeltaLog, layout: Layout, target_bytes: int, folder: "Path") -> None:
        self._con, self._log, self._layout, self._target, self._folder = session.con, log, layout, target_bytes, folder
        self._metadata: object = None
        self._batches: tuple[_Batch, ...] = ()

    def proposal(self, snapshot: Snapshot) -> Proposal:
        """Return the proposal for the version after a snapshot."""
        layout = _of_columns(snapshot, self._layout)
        if layout.same_as(layout_of(snapshot)):
            self.withdraw()
            raise NothingToCommit
        # Another schema, or another table.
        read = snapshot.uuid, snapshot.metadata
        if read != self._metadata:
            self.withdraw()
            self._metadata = read
        live = {file.key: file for file in self._log.files(snapshot)}
        self._withdraw([batch for batch in self._batches if not batch.counted.keys() <= live.keys()])
        done = {key for batch in self._batches for key in batch.counted}
        if new := [file for key, file in live.items() if key not in done]:
            self._batches += (self._write(snapshot, layout, new),)
        metadata, further, updates = layout_changed(snapshot, layout)
        adds, removes = self._written(), list(live.values())
        return Proposal(
            adds=adds,
            removes=removes,
            # As a compaction: no reader takes it for a change.
            operation="OPTIMIZE",
            parameters={"predicate": "[]", "layout": str(layout), "before": str(layout_of(snapshot))},
            metrics={
                "numRemovedFiles": len(removes),
                "numRemovedBytes": sum(file.add["size"] for file in removes),
                "numAddedFiles": len(adds),
                "numAddedBytes": sum(file.size for file in adds),
                "numDeletionVectorsRemoved": sum(file.has_deletion_vector for file in removes),
            },
            metadata=(metadata, updates),
            further=further,
            data_change=False,
            counted={key: rows for batch in self._batches for key, rows in batch.counted.items()},
        )

    def done(self, committed: Committed) -> Migrated:
        """Return what the commit did."""
        files, written = sum(len(batch.counted) for batch in self._batches), self._written()
        rows = sum(file.rows for file in written)
        return Migrated(committed.version, files, len(written), rows, committed.attempts)

    def withdraw(self) -> None:
        """Delete all files, which no commit names."""
        self._withdraw(self._batches)

    def _written(self) -> list[DataFile]:
        return [file for batch in self._batches for file in batch.written]

    def _withdraw(self, batches: Sequence[_Batch]) -> None:
        self._batches = tuple(batch for batch in self._batches if batch not in batches)
        for batch in batches:
            self._log.storage.discard(file.path for file in batch.written)

    def _write(self, snapshot: Snapshot, layout: Layout, files: Sequence[LiveFile]) -> _Batch:
        """Write the rows of files again: all of them, or none."""
        import duckdb

        size, where, written = sum(file.add["size"] for file in files), snapshot.full_name, list[DataFile]()
        try:
            with live_rows(self._con, self._log.storage, snapshot, files) as live:
                if not live.rows:
                    return _Batch(live.counted, ())
                self._sort(live, layout)
                rows_a_file = max(1, live.rows * self._target // max(size, 1))
                types = {name: type_.spark for name, type_ in snapshot.column_types.items()}
                for values, first, end in self._pieces(where, layout, types, live.rows, rows_a_file):
                    target = self._folder / f"{uuid4().hex}.parquet"
                    without = f" EXCLUDE ({', '.join(map(identifier, layout.partition_by))})" if layout.partition_by else ""
                    some = f"SELECT *{without} FROM {_ROWS} WHERE rowid >= {first} AND rowid < {end}"
                    file = write_parquet(self._con, some, target)
                    written.append(put_data_file(self._log.storage, target, file, live.id_columns, values))
                    target.unlink()
            _check_copied(where, live.rows, sum(file.rows for file in written))
            return _Batch(live.counted, tuple(written))
        except BaseException as error:
            # No proposal has named them.
            self._log.storage.discard(file.path for file in written)
            if not isinstance(error, duckdb.Error):
                raise
            raise UnsafeTable(
                f"DuckDB cannot write the files of {where} again: {error}. The table stays as it is."
            ) from error
        finally:
            self._con.execute(f"DROP TABLE IF EXISTS {_ROWS}")

    def _sort(self, live: LiveRows, layout: Layout) -> None:
        """Store the rows in the order in which they are written, with the columns of their present partitions."""
        snapshot = live.snapshot
        types = {name: type_.sql for name, type_ in snapshot.column_types.items()}
        partitioned, query = list(snapshot.partition_columns), live.select()
        if partitioned:
            named = ", ".join(f"{identifier(name)} VARCHAR" for name in partitioned)
            self._con.execute(f"CREATE OR REPLACE TEMP TABLE {_VALUES} ({FILE} VARCHAR, {named})")
            # An empty text is NULL (PROTOCOL.md, "Partition Value Serialization").
            values = [
                [path, *(file.add["partitionValues"].get(name) or None for name in partitioned)]
                for path, file in live.files.items()
            ]
            marks = ", ".join("?" * (len(partitioned) + 1))
            self._con.executemany(f"INSERT INTO {_VALUES} VALUES ({marks})", values)
            query = f"SELECT l.*, v.* EXCLUDE ({FILE}) FROM ({query}) AS l JOIN {_VALUES} AS v ON l.{FILE} = v.{FILE}"
        columns = [
            f"CAST({identifier(name)} AS {type_}) AS {identifier(name)}" if name in partitioned else identifier(name)
            for name, type_ in types.items()
        ]
        rows = f"SELECT {', '.join([*columns, *map(identifier, live.id_columns)])} FROM ({query})"
        by = layout.partition_by or layout.cluster_by
        order = RowOrder(by, z_order=layout.is_z_ordered)
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE {_ROWS} AS {order.ordered(rows)}")

    def _pieces(
        self, where: str, layout: Layout, types: Mapping[str, str], rows: int, rows_a_file: int
    ) -> Iterator[tuple[dict[str, str | None], int, int]]:
        """Yield the partition values of each new file, its first row, and the row after its last."""
        groups: list[tuple[dict[str, str | None], int, int]] = [({}, 0, rows)]
        if layout.partition_by:
            names = ", ".join(map(identifier, layout.partition_by))
            texts = ", ".join(f"CAST({identifier(name)} AS VARCHAR)" for name in layout.partition_by)
            wrong = ", ".join(
                f"any_value({unusable(IN_DUCKDB, name, types[name], identifier(name)) or 'NULL'})"
                for name in layout.partition_by
            )
            found = self._con.execute(
                f"SELECT [{wrong}], min(rowid), max(rowid) + 1, {texts} FROM {_ROWS} GROUP BY {names} ORDER BY 2"
            ).fetchall()
            _refuse_partitions(where, layout, [refusals for refusals, *_ in found])
            groups = [(dict(zip(layout.partition_by, texts, strict=True)), first, end) for _, first, end, *texts in found]
        for values, first, end in groups:
            for at in range(first, end, rows_a_file):
                yield values, at, min(at + rows_a_file, end)


def _of_columns(snapshot: Snapshot, layout: Layout) -> Layout:
    """The layout with the names of columns as the table has them."""
    types = {name: type_.spark for name, type_ in snapshot.column_types.items()}
    names = {name.lower(): name for name in types}

    def named(columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(names.get(name.lower(), name) for name in columns)

    found = Layout(named(layout.partition_by), named(layout.cluster_by))
    try:
        found.check(snapshot.full_name, types, all_known=True)
    except UnsafeDeclaration as error:
        raise UnsafeTable(str(error)) from error
    return found


def _check_copied(where: str, rows: int, copied: int) -> None:
    if copied != rows:
        raise UnsafeTable(
            f"{where}: its files have {rows:,} rows, and their copies {copied:,}. The table stays as it is: a file is "
            "damaged, or was changed in place."
        )


def _refuse_partitions(where: str, layout: Layout, found: Sequence[Sequence[str | None]]) -> None:
    by = ", ".join(layout.partition_by)
    if len(found) > _MOST_PARTITIONS:
        raise UnsafeTable(
            f"{where} would have {len(found):,} partitions by {by}, each with files of its own; {_MOST_PARTITIONS:,} are "
            "allowed. Cluster it by these columns instead."
        )
    for refusals in found:
        for name, wrong in zip(layout.partition_by, refusals, strict=True):
            if wrong:
                raise UnsafeTable(f"{where} has in {name} {wrong}: rows would change. Cluster it by this column instead.")
