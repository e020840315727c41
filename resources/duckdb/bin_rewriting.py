"""The rows of several data files of a table as one new file: without the deleted ones, and with the ids that they have."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from resources.column_types import SqlType, type_of_delta
from resources.delta.deletion_vectors import deleted_rows
from resources.delta.snapshot import DataFile, Json, LiveFile, Snapshot
from resources.delta.table_storage import TableStorage
from resources.duckdb.compaction_bins import Bin
from resources.duckdb.parquet_files import ParquetFile, write_parquet
from resources.errors import UnsafeTable
from resources.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FILE, _NUMBER = "_ratify_file", "file_row_number"
_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True)
class Rewritten:
    """A rewritten bin: its new file, or None where all of its rows were deleted, and the number of those."""

    file: DataFile | None
    deleted_rows: int


def rewrite(
    con: "DuckDBPyConnection", storage: TableStorage, snapshot: Snapshot, bin_: Bin, sort: Sequence[str], folder: Path
) -> Rewritten:
    """Write the rows of a bin to a new file in the table's storage, which no version names yet.

    Args:
        con: A session's connection, whose time zone is UTC. Beyond its memory limit it sorts on disk.
        storage: The table's.
        snapshot: A version of the table with these files.
        bin_: The files.
        sort: Columns to order the rows by.
        folder: For temporary files.

    Raises:
        UnsafeTable: a file is missing or damaged, or has values that DuckDB cannot read.
        AppendFailed: it has an infinite date.
        LogUnreadable, StorageUnavailable.
    """
    import duckdb

    with ExitStack() as stack:
        try:
            local = {str(stack.enter_context(storage.downloaded(file.path))): file for file in bin_.files}
            for path in local:
                Path(path).stat()
            deleted = {path: deleted_rows(storage, file.add) for path, file in local.items() if file.has_deletion_vector}
        except FileNotFoundError as error:
            raise UnsafeTable(
                f"{snapshot.full_name} names {error.filename or error}, which is not in its storage: run "
                "`ratify repair` first."
            ) from error
        source = _BinSource(con, snapshot, local)
        target = folder / f"{uuid4().hex}.parquet"
        try:
            left = source.prepare(deleted)
            if not left:
                return Rewritten(None, sum(map(len, deleted.values())))
            written = write_parquet(con, source.select(sort), target)
        except duckdb.Error as error:
            raise UnsafeTable(
                f"DuckDB cannot rewrite {len(local)} files of {snapshot.full_name}, the first of them {bin_.files[0].path}: "
                f"{error}. These files stay as they are; compact the table with its own engine."
            ) from error
    if written.rows != left:
        raise UnsafeTable(
            f"{snapshot.full_name}: {len(bin_.files)} of its files have {left:,} rows, and their copy has {written.rows:,}. "
            "They stay as they are: one is damaged, or was changed in place. Compare each with its statistics in the log."
        )
    path = f"duckdb-{uuid4()}.parquet"
    storage.put(target, path)
    target.unlink()
    stats = _stats_without(written, source.id_columns)
    return Rewritten(
        DataFile(path, written.rows, written.size, stats, bin_.partition_values), sum(map(len, deleted.values()))
    )


class _BinSource:
    """A query over the files of a bin. Engines store the same values in Parquet in several ways, so each is cast."""

    def __init__(self, con: "DuckDBPyConnection", snapshot: Snapshot, local: Mapping[str, LiveFile]) -> None:
        self._con, self._local = con, local
        fields = [field for field in snapshot.fields if field["name"] not in snapshot.partition_columns]
        self._types: dict[str, SqlType] = {field["name"]: type_of_delta(field["type"]) for field in fields}
        self.id_columns = _id_columns(snapshot)
        if self.id_columns and any(file.add.get("baseRowId") is None for file in local.values()):
            raise UnsafeTable(
                f"{snapshot.full_name} tracks its rows, and a file of it has no row ids yet: compact it with its own "
                f"engine, or run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false') "
                "in Spark."
            )

    def prepare(self, deleted: Mapping[str, Sequence[int]]) -> int:
        """Store which rows are deleted, and which ids the others have; return how many rows are left."""
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE ratify_bin_deleted ({_FILE} VARCHAR, n BIGINT)")
        for path, numbers in deleted.items():
            given = {"path": path, "numbers": list(numbers)}
            self._con.execute("INSERT INTO ratify_bin_deleted SELECT $path, unnest($numbers::BIGINT[])", given)
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE ratify_bin_files ({_FILE} VARCHAR, id BIGINT, version BIGINT)")
        self._con.execute(
            "INSERT INTO ratify_bin_files "
            "SELECT unnest($paths::VARCHAR[]), unnest($ids::BIGINT[]), unnest($versions::BIGINT[])",
            {
                "paths": list(self._local),
                "ids": [file.add.get("baseRowId") for file in self._local.values()],
                "versions": [file.add.get("defaultRowCommitVersion") for file in self._local.values()],
            },
        )
        names = ", ".join(map(literal, self._local))
        ((rows,),) = self._con.execute(f"SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata([{names}])").fetchall()
        return int(rows) - sum(map(len, deleted.values()))

    def select(self, sort: Sequence[str]) -> str:
        """The query. Files with the same columns are read together."""
        groups = dict[tuple[tuple[str, str], ...], list[str]]()
        for path in self._local:
            described = self._con.execute(
                f"DESCRIBE FROM read_parquet({literal(path)}, hive_partitioning = false)"
            ).fetchall()
            groups.setdefault(tuple((name, type_) for name, type_, *_ in described), []).append(path)
        rows = " UNION ALL ".join(self._group([name for name, _ in columns], paths) for columns, paths in groups.items())
        order = f" ORDER BY {', '.join(map(identifier, sort))}" if sort else ""
        return f"FROM ({rows}){order}"

    def _group(self, columns: Sequence[str], paths: Sequence[str]) -> str:
        has = {name.lower(): identifier(name) for name in columns}
        selected = [
            f"CAST({f'f.{has[name.lower()]}' if name.lower() in has else 'NULL'} AS {type_.sql}) AS {identifier(name)}"
            for name, type_ in self._types.items()
        ]
        for name, otherwise in zip(self.id_columns, (f"m.id + f.{_NUMBER}", "m.version"), strict=False):
            own = f"f.{has[name.lower()]}, " if name.lower() in has else ""
            selected.append(f"CAST(coalesce({own}{otherwise}) AS BIGINT) AS {identifier(name)}")
        names = ", ".join(map(literal, paths))
        return (
            f"SELECT {', '.join(selected)} FROM read_parquet([{names}], filename = '{_FILE}', {_NUMBER} = true, "
            f"hive_partitioning = false) AS f JOIN ratify_bin_files AS m ON f.{_FILE} = m.{_FILE} "
            f"ANTI JOIN ratify_bin_deleted AS d ON f.{_FILE} = d.{_FILE} AND f.{_NUMBER} = d.n"
        )


def _id_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of data files that have the ids of moved rows, and the versions that last changed them.

    PROTOCOL.md, "Row Tracking": a writer that moves rows has to keep both.
    """
    configuration: Mapping[str, str] = snapshot.metadata.get("configuration") or {}
    if configuration.get("delta.enableRowTracking") != "true":
        return ()
    names = tuple(configuration.get(key, "") for key in (_ID_COLUMN, _VERSION_COLUMN))
    if not all(names):
        raise UnsafeTable(
            f"{snapshot.full_name} tracks its rows, and does not say in which columns moved rows keep their ids: compact it "
            "with its own engine."
        )
    return names


def _stats_without(written: ParquetFile, columns: Sequence[str]) -> Json:
    stats = dict(written.stats)
    for key in ("nullCount", "minValues", "maxValues"):
        of_columns: Json = stats[key]
        stats[key] = {name: value for name, value in of_columns.items() if name not in columns}
    return stats
