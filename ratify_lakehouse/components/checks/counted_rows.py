"""The rows of a table's versions, counted by reading them."""

from collections.abc import Callable
from contextlib import ExitStack

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.deletion_vectors import deleted_rows
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.table_version import table_version
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.duckdb_sql import literal


def counted_rows(spark: Spark, session: DuckDBSession, declaration: TableDeclaration) -> Callable[[int], int]:
    """Return what counts the rows of a version, 0 before the first: DuckDB, which opens the files, where they are on a local
    disk; else Spark.
    """
    log = session.log(declaration)

    def rows_at(version: int) -> int:
        if version < 0:
            return 0
        return spark.count(declaration, version) if log.storage.local is None else _rows_of_files(session, log, version)

    return rows_at


def _rows_of_files(session: DuckDBSession, log: DeltaLog, version: int) -> int:
    """Return the rows that a version's files say they have: a column may have a type that DuckDB does not read."""
    counted, paths = 0, list[str]()
    with ExitStack() as stack:
        for file in table_version(log, version).files.values():
            try:
                paths.append(str(stack.enter_context(log.storage.downloaded(file.path))))
            except FileNotFoundError:
                # A clean deletes it with the last version that has it; the check of files finds the others.
                counted += file.rows or 0
            else:
                counted -= len(deleted_rows(log.storage, file.add)) if file.has_deletion_vector else 0
        if paths:
            footers = f"parquet_file_metadata([{', '.join(map(literal, paths))}])"
            counted += session.rows(f"SELECT CAST(sum(num_rows) AS BIGINT) FROM {footers}")[0][0]
    return counted
