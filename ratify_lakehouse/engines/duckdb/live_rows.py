"""The rows of data files of a table's version, as DuckDB queries them: without deleted ones, with the ids that they have."""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.column_types import SqlType, type_of_delta
from ratify_lakehouse.delta.deletion_vectors import deleted_rows
from ratify_lakehouse.delta.snapshot import LiveFile, Snapshot
from ratify_lakehouse.delta.table_features import Use, refuse
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.sql.duckdb_sql import identifier, literal, no_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FILE = "_ratify_file"
"""Column with the local path of the file that a row is in."""

_NUMBER = "file_row_number"
_OPENED = count(1)
_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


@contextmanager
def live_rows(
    con: "DuckDBPyConnection", storage: TableStorage, snapshot: Snapshot, files: Sequence[LiveFile]
) -> Generator["LiveRows"]:
    """Yield the rows of files.

    Args:
        con: A session's connection, whose time zone is UTC.
        storage: The table's.
        snapshot: A version of the table with these files.
        files: The files. Each is open, and one of a remote storage is copied to this machine.

    Raises:
        UnsafeTable: the table has column mapping, or tracks its rows and a file has no row ids; or a file is missing.
        LogUnreadable, StorageUnavailable.
        duckdb.Error: a file is damaged.
    """
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, Use.FILES)
    with ExitStack() as stack:
        try:
            local = {str(stack.enter_context(storage.downloaded(file.path))): file for file in files}
            for path in local:
                Path(path).stat()
            deleted = {path: deleted_rows(storage, file.add) for path, file in local.items() if file.has_deletion_vector}
        except FileNotFoundError as error:
            raise UnsafeTable(
                f"{snapshot.full_name} names {error.filename or error}, which is not in its storage: run "
                "`ratify repair` first."
            ) from error
        yield LiveRows(con, snapshot, local, deleted)


class LiveRows:
    """Rows of files. Engines store the same values in Parquet in several ways, so each is cast to the table's type.

    Attributes:
        snapshot: The version.
        files: The files by their local paths.
        id_columns: Columns of data files that have the ids of moved rows, and the versions that last changed them.
        deleted: How many more the files have.
    """

    def __init__(
        self,
        con: "DuckDBPyConnection",
        snapshot: Snapshot,
        files: Mapping[str, LiveFile],
        deleted: Mapping[str, Sequence[int]],
    ) -> None:
        self._con, self.snapshot, self.files = con, snapshot, files
        # A session may have the rows of several tables open.
        number = next(_OPENED)
        self._deleted_rows, self._file_ids = f"ratify_deleted_rows_{number}", f"ratify_file_ids_{number}"
        fields = [field for field in snapshot.fields if field["name"] not in snapshot.partition_columns]
        self._types: dict[str, SqlType] = {field["name"]: type_of_delta(field["type"]) for field in fields}
        self.id_columns = _id_columns(snapshot)
        if self.id_columns and any(file.add.get("baseRowId") is None for file in files.values()):
            raise UnsafeTable(
                f"{snapshot.full_name} tracks its rows, and a file of it has no row ids yet: write it with its own "
                f"engine, or run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false') "
                "in Spark."
            )
        self.deleted = sum(map(len, deleted.values()))
        self._store(deleted)
        self._columns = {path: self._columns_of(path) for path in files}
        in_files = self._rows_in_files()
        self._rows = {path: in_files[path] - len(deleted.get(path, ())) for path in files}

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(self._rows.values())

    def rows_of(self, path: str) -> int:
        """Return how many there are in a file, given its local path."""
        return self._rows[path]

    @property
    def counted(self) -> dict[tuple[str, str], int]:
        """How many there are in each file, by the keys of the files."""
        return {file.key: self._rows[path] for path, file in self.files.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns, without those of its partitions."""
        return tuple(self._types)

    @property
    def types(self) -> dict[str, str]:
        """DuckDB's types of these columns, and of `id_columns`."""
        return {name: type_.sql for name, type_ in self._types.items()} | dict.fromkeys(self.id_columns, "BIGINT")

    def select(self, paths: Collection[str] | None = None, columns: Collection[str] | None = None) -> str:
        """Return the query for the rows, with `id_columns` and `FILE`. Files with the same columns are read together.

        Args:
            paths: Local paths of some of the files; None: all.
            columns: Some of the columns; None: all.
        """
        groups = dict[tuple[str, ...], list[str]]()
        for path in self.files if paths is None else paths:
            groups.setdefault(self._columns[path], []).append(path)
        wanted = {name: type_ for name, type_ in self._types.items() if columns is None or name in columns}
        if not groups:
            return no_rows({**{name: type_.sql for name, type_ in wanted.items()}, FILE: "VARCHAR"})
        return " UNION ALL ".join(self._group(wanted, has, paths) for has, paths in groups.items())

    def _group(self, wanted: Mapping[str, SqlType], columns: Sequence[str], paths: Sequence[str]) -> str:
        has = {name.lower(): identifier(name) for name in columns}
        selected = [
            f"CAST({f'f.{has[name.lower()]}' if name.lower() in has else 'NULL'} AS {type_.sql}) AS {identifier(name)}"
            for name, type_ in wanted.items()
        ]
        for name, otherwise in zip(self.id_columns, (f"m.id + f.{_NUMBER}", "m.version"), strict=False):
            own = f"f.{has[name.lower()]}, " if name.lower() in has else ""
            selected.append(f"CAST(coalesce({own}{otherwise}) AS BIGINT) AS {identifier(name)}")
        names = ", ".join(map(literal, paths))
        return (
            f"SELECT {', '.join(selected)}, f.{FILE} FROM read_parquet([{names}], filename = '{FILE}', {_NUMBER} = true, "
            "hive_partitioning = false) AS f"
            + (f" JOIN {self._file_ids} AS m ON f.{FILE} = m.{FILE}" if self.id_columns else "")
            + (f" ANTI JOIN {self._deleted_rows} AS d ON f.{FILE} = d.{FILE} AND f.{_NUMBER} = d.n" if self.deleted else "")
        )

    def _store(self, deleted: Mapping[str, Sequence[int]]) -> None:
        """Store which rows are deleted, and which ids the others have."""
        self._con.execute(f"CREATE TEMP TABLE {self._deleted_rows} ({FILE} VARCHAR, n BIGINT)")
        for path, numbers in deleted.items():
            given = {"path": path, "numbers": list(numbers)}
            self._con.execute(f"INSERT INTO {self._deleted_rows} SELECT $path, unnest($numbers::BIGINT[])", given)
        self._con.execute(f"CREATE TEMP TABLE {self._file_ids} ({FILE} VARCHAR, id BIGINT, version BIGINT)")
        self._con.execute(
            f"INSERT INTO {self._file_ids} "
            "SELECT unnest($paths::VARCHAR[]), unnest($ids::BIGINT[]), unnest($versions::BIGINT[])",
            {
                "paths": list(self.files),
                "ids": [file.add.get("baseRowId") for file in self.files.values()],
                "versions": [file.add.get("defaultRowCommitVersion") for file in self.files.values()],
            },
        )

    def _rows_in_files(self) -> dict[str, int]:
        if not self.files:
            return {}
        names = ", ".join(map(literal, self.files))
        return dict(self._con.execute(f"SELECT file_name, num_rows FROM parquet_file_metadata([{names}])").fetchall())

    def _columns_of(self, path: str) -> tuple[str, ...]:
        described = self._con.execute(f"DESCRIBE FROM read_parquet({literal(path)}, hive_partitioning = false)").fetchall()
        return tuple(name for name, *_ in described)


def _id_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """PROTOCOL.md, "Row Tracking": a writer that moves rows has to keep both."""
    configuration: Mapping[str, str] = snapshot.metadata.get("configuration") or {}
    if configuration.get("delta.enableRowTracking") != "true":
        return ()
    names = tuple(configuration.get(key, "") for key in (_ID_COLUMN, _VERSION_COLUMN))
    if not all(names):
        raise UnsafeTable(
            f"{snapshot.full_name} tracks its rows, and does not say in which columns moved rows keep their ids: write it "
            "with its own engine."
        )
    return names
