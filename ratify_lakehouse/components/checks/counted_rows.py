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
    """Return what counts a table's rows: the engine that writes them. DuckDB opens the files, which have to be near."""
    log = session.log(declaration)
    if _by_duckdb(declaration, log):
        return _RowsByDuckDB(session, log)
    return _RowsBySpark(spark, declaration)


def columns_with_types(spark: Spark, declaration: TableDeclaration, log: DeltaLog) -> Sequence[tuple[str, str]]:
    """Return a table's columns, each with its type in Spark SQL's words, as the engine that writes it has them."""
    if _by_duckdb(declaration, log):
        return [(field["name"], type_of_delta(field["type"]).spark) for field in log.refresh().fields]
    return spark.table(declaration).dtypes


def _by_duckdb(declaration: TableDeclaration, log: DeltaLog) -> bool:
    """Return whether DuckDB alone looks at a table: it writes the table, whose files are on a disk of this machine."""
    return declaration.writer is Engine.DUCKDB and log.storage.local is not None


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
        return self._counted(version, "true")[0] if version >= 0 else 0

    def of_batches(self, batches: Sequence[str], version: int) -> tuple[int, int]:
        chosen = ", ".join(map(duckdb_sql.literal, batches))
        return self._counted(version, f"_batch_id IN ({chosen})")

    def _counted(self, version: int, condition: str) -> tuple[int, int]:
        """Count the rows of a version, and those of them for which a condition holds."""
        files = list(table_version(self.log, version).files.values())
        # One by one where some of its rows are deleted.
        whole = [file for file in files if not file.has_deletion_vector]
        groups = [*([whole] if whole else []), *([file] for file in files if file.has_deletion_vector)]
        counted = [self._of_files(group, condition) for group in groups]
        return sum(rows for rows, _ in counted), sum(chosen for _, chosen in counted)

    def _of_files(self, files: Sequence[LiveFile], condition: str) -> tuple[int, int]:
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
