"""The rows of a table's versions, counted by reading them, and its columns, as `TableRows` says them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ratify_lakehouse.column_types import type_of_delta
from ratify_lakehouse.components.checks.history_findings import TableRows
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.deletion_vectors import deleted_rows
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import LiveFile
from ratify_lakehouse.delta.table_version import table_version
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql import duckdb_sql, spark_sql


def counted_rows(spark: Spark, session: DuckDBSession, declaration: TableDeclaration) -> TableRows:
    """Return what counts a table's rows: DuckDB, which opens the files, where they are on a local disk; else Spark."""
    log = session.log(declaration)
    return _RowsBySpark(spark, declaration) if log.storage.local is None else _RowsByDuckDB(session, log)


def columns_with_types(spark: Spark, declaration: TableDeclaration, log: DeltaLog) -> Sequence[tuple[str, str]]:
    """Return a table's columns, each with its type in Spark SQL's words, as the engine that writes it has them."""
    if declaration.writer is Engine.DUCKDB and log.storage.local is not None:
        return [(field["name"], type_of_delta(field["type"]).spark) for field in log.refresh().fields]
    return spark.table(declaration).dtypes


@dataclass(frozen=True)
class _RowsBySpark:
    spark: Spark
    declaration: TableDeclaration

    def at(self, version: int) -> int:
        return self.spark.count(self.declaration, version) if version >= 0 else 0

    def of_batches(self, batches: Sequence[str], version: int) -> tuple[int, int]:
        name = self.spark.full_name(self.declaration)
        chosen = ", ".join(map(spark_sql.literal, batches))
        counts = f"count(*) AS n, count_if(_batch_id IN ({chosen})) AS of_batches"
        (row,) = self.spark.rows(self.spark.sql(f"SELECT {counts} FROM {name} VERSION AS OF {version}"))
        return int(row["n"]), int(row["of_batches"])


@dataclass(frozen=True)
class _RowsByDuckDB:
    session: DuckDBSession
    log: DeltaLog

    def at(self, version: int) -> int:
        """Return the rows of the files, as these themselves say it: a column may have a type that DuckDB does not read."""
        if version < 0:
            return 0
        counted, paths = 0, list[str]()
        with ExitStack() as stack:
            for file in table_version(self.log, version).files.values():
                try:
                    paths.append(str(stack.enter_context(self.log.storage.downloaded(file.path))))
                except FileNotFoundError:
                    # A clean deletes it with the last version that has it; the check of files finds the others.
                    counted += file.rows or 0
                else:
                    counted -= len(deleted_rows(self.log.storage, file.add)) if file.has_deletion_vector else 0
            if paths:
                footers = f"parquet_file_metadata([{', '.join(map(duckdb_sql.literal, paths))}])"
                counted += self.session.rows(f"SELECT CAST(sum(num_rows) AS BIGINT) FROM {footers}")[0][0]
        return counted

    def of_batches(self, batches: Sequence[str], version: int) -> tuple[int, int]:
        condition = f"_batch_id IN ({', '.join(map(duckdb_sql.literal, batches))})"
        files = list(table_version(self.log, version).files.values())
        # One by one where some of its rows are deleted.
        whole = [file for file in files if not file.has_deletion_vector]
        groups = [*([whole] if whole else []), *([file] for file in files if file.has_deletion_vector)]
        counted = [self._of_files(group, condition) for group in groups]
        return sum(rows for rows, _ in counted), sum(chosen for _, chosen in counted)

    def _of_files(self, files: Sequence[LiveFile], condition: str) -> tuple[int, int]:
        """Count the rows of files, and those of them for which a condition holds."""
        with ExitStack() as stack:
            paths = [str(stack.enter_context(self.log.storage.downloaded(file.path))) for file in files]
            listed, given = ", ".join(map(duckdb_sql.literal, paths)), dict[str, object]()
            text = (
                f"SELECT count(*), count(*) FILTER ({condition}) "
                f"FROM read_parquet([{listed}], file_row_number = true, hive_partitioning = false) AS f"
            )
            if files[0].has_deletion_vector:
                text += " ANTI JOIN (SELECT unnest($gone::BIGINT[]) AS n) AS d ON f.file_row_number = d.n"
                given["gone"] = list(deleted_rows(self.log.storage, files[0].add))
            ((rows, chosen),) = self.session.con.execute(text, given).fetchall()
        return rows, chosen
