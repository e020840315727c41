"""The table of a source of landed files: created, with the declared columns that it lacks, and as it is now."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import BadFile, TableMissing
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.formats.isolated_parsing import infer
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.scratch_folders import scratch_folder

if TYPE_CHECKING:
    from ratify_lakehouse.engines.spark.spark_engine import Spark


def ensure_landed_table(
    spark: "Spark", duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]
) -> bool:
    """Create the table of a source where it is missing, and otherwise add the declared columns that it lacks.

    What is not declared of its columns is inferred from the first readable file. A table that exists gets no column
    without a type until there is such a file.

    Returns:
        Whether it was created.

    Raises:
        TableMissing: it is missing, and no file can be read.
        UnsafeTable: a column that it lacks is declared as NOT NULL.
    """
    try:
        existing = spark.catalog.table(source.table.full_name(spark.catalog.connection.name))
    except TableMissing:
        if not source.infers_types:
            return spark.ensure_table(source.table)
        if (columns := _inferred(duckdb, landing, source, files)) is None:
            raise TableMissing(
                f"{source.table_name} does not exist yet, and its columns cannot be inferred: none of {len(files)} landed "
                "files can be read. Land one that can."
            ) from None
        return spark.ensure_table(source.inferred_table(columns))
    names = {(column.name or "").lower() for column in existing.columns or []}
    lacking = [column for column in source.table.columns if column.name.lower() not in names]
    if not all(column.type for column in lacking):
        found = _inferred(duckdb, landing, source, files)
        typed = source.table if found is None else source.inferred_table(found)
        lacking = [column for column in typed.columns if column.type and column.name in [each.name for each in lacking]]
    if lacking:
        with duckdb.session() as session:
            session.add_columns(source.table, lacking)
    return False


def present_table(session: DuckDBSession, source: Source) -> TableDeclaration:
    """Return the table of a source with the columns that it has, in the order in which files are written.

    Raises:
        TableMissing: its columns are inferred, and it does not exist. Where only types are, columns without one are strings.
    """
    if not source.infers_types:
        return source.table
    try:
        return source.present_table(session.columns(source.table))
    except TableMissing:
        if not source.table.types_from_files:
            raise
        return source.inferred_table(())


def _inferred(
    duckdb: DuckDB, landing: LandingZone, source: Source, files: Sequence[LandedFile]
) -> tuple[Column, ...] | None:
    """The columns of the first readable file; None if there is none."""
    with scratch_folder(duckdb.home) as folder, duckdb.session() as session:
        for file in files:
            fetched = landing.fetch(file.path, folder)
            with suppress(BadFile):
                return infer(session.con, source, file.path, fetched.local)
            fetched.local.unlink()
    return None
