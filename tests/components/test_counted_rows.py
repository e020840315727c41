"""Rows of versions, counted by DuckDB from the files: as many as Spark counts, also beside deletion vectors."""

from uuid import uuid4

import pytest

from ratify_lakehouse.components.checks.counted_rows import counted_rows
from ratify_lakehouse.declarations import Column, Engine
from ratify_lakehouse.delta.table_version import table_version
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack


def test_both_engines_count_the_same(lake: Lakehouse) -> None:
    columns = (Column("id", "bigint"), Column("at", "timestamp"), Column("l", "array<int>"))
    table = lake.create(pairs(columns=columns))
    append(lake.duckdb, table, "SELECT i, now(), [1] FROM range(10) AS r(i)", "load-1")
    append(lake.duckdb, table, "SELECT i, NULL, NULL FROM range(10, 15) AS r(i)", "load-2")
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id IN (1, 2, 12)")
    lake.run(f"UPDATE {lake.full(table)} SET at = now() WHERE id = 4")
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 3")
    with lake.duckdb.session() as session:
        log = session.log(table)
        latest = log.refresh().version
        rows_at = counted_rows(lake.spark, session, table)
        for version in range(latest + 1):
            assert rows_at(version) == lake.spark.count(table, version)
        assert (rows_at(latest), rows_at(-1)) == (11, 0)


def test_types_that_duckdb_does_not_read_and_files_that_a_clean_deleted_count(lake: Lakehouse) -> None:
    """A report is compared with the version before it, too, whose files may be gone by then."""
    # A schema of its own: DuckDB cannot read one with a column of this type.
    schema = f"s_{uuid4().hex[:10]}"
    lake.catalog.ensure_schemas((schema,))
    table = lake.create(pairs(writer=Engine.SPARK, layer=schema))
    for rows in (3, 2):
        lake.run(f"INSERT INTO {lake.full(table)} SELECT id, 'a' FROM range({rows})")
    lake.run(f"ALTER TABLE {lake.full(table)} ADD COLUMN extra VARIANT")
    lake.run(f"INSERT INTO {lake.full(table)} SELECT 9, 'b', parse_json('[1]')")
    with lake.duckdb.session() as session:
        log = session.log(table)
        rows_at = counted_rows(lake.spark, session, table)
        latest = log.refresh().version
        assert [rows_at(version) for version in range(latest - 2, latest + 1)] == [5, 5, 6]
        assert log.storage.local
        for file in table_version(log, latest - 1).files.values():
            (log.storage.local / file.path).unlink()
        assert [rows_at(version) for version in range(latest - 2, latest + 1)] == [5, 5, 6]
