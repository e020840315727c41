"""The rows of several data files of a table as one new file: without the deleted ones, and with the ids that they have."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ratify_lakehouse.delta.compaction_bins import Bin
from ratify_lakehouse.delta.snapshot import DataFile, Snapshot
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.engines.duckdb.live_rows import FILE, live_rows
from ratify_lakehouse.engines.duckdb.parquet_files import put_data_file, write_parquet
from ratify_lakehouse.engines.duckdb.row_order import RowOrder
from ratify_lakehouse.errors import UnsafeTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Rewritten:
    """A rewritten bin: its new file, or None where all rows were deleted, the number of those, and of the others by file."""

    file: DataFile | None
    deleted_rows: int
    counted: Mapping[tuple[str, str], int]


def rewrite(
    con: "DuckDBPyConnection", storage: TableStorage, snapshot: Snapshot, bin_: Bin, order: RowOrder, folder: Path
) -> Rewritten:
    """Write the rows of a bin to a new file in the table's storage, which no version names yet.

    Args:
        con: A session's connection, whose time zone is UTC. Beyond its memory limit it sorts on disk.
        storage: The table's.
        snapshot: A version of the table with these files.
        bin_: The files.
        order: Of the rows.
        folder: For temporary files.

    Raises:
        UnsafeTable: a file is missing or damaged, or has values that DuckDB cannot read.
        AppendFailed: it has an infinite date.
        LogUnreadable, StorageUnavailable.
    """
    import duckdb

    paths = [file.path for file in bin_.files]
    target = folder / f"{uuid4().hex}.parquet"
    try:
        with live_rows(con, storage, snapshot, bin_.files) as live:
            if not live.rows:
                return Rewritten(None, live.deleted, live.counted)
            written = write_parquet(con, order.ordered(f"SELECT * EXCLUDE ({FILE}) FROM ({live.select()})"), target)
    except duckdb.Error as error:
        raise UnsafeTable(
            f"DuckDB cannot rewrite {len(paths)} files of {snapshot.full_name}, the first of them {paths[0]}: "
            f"{error}. These files stay as they are; compact the table with its own engine."
        ) from error
    if written.rows != live.rows:
        raise UnsafeTable(
            f"{snapshot.full_name}: {len(paths)} of its files have {live.rows:,} rows, and their copy has {written.rows:,}. "
            "They stay as they are: one is damaged, or was changed in place. Compare each with its statistics in the log."
        )
    file = put_data_file(storage, target, written, live.id_columns, bin_.partition_values)
    target.unlink()
    return Rewritten(file, live.deleted, live.counted)
