"""Rows of a sync's source that do not fit its destination, each with the reason, until it fits or the source lost it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from components.syncs.converted_rows import ERRORS, ROW
from components.syncs.sync_declaration import SyncDeclaration, SyncMode
from resources.declarations import Column, Engine, TableDeclaration
from resources.delta.computed_inputs import InputVersion
from resources.errors import TableMissing
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD_LETTERS = TableDeclaration(
    layer="ops",
    name="sync_dead_letters",
    columns=(
        Column("sync", "string", "Name of the sync"),
        Column("row_hash", "string", "SHA-256 of the row, and of what it was read from where each reading counts"),
        Column("reason", "string", "What does not fit"),
        Column("row", "string", "The row as the source has it, JSON", pii=True),
        Column("rows", "bigint", "How many such rows there are"),
        Column("read_from", "string", "Versions of the source that it was read at first, JSON"),
        Column("replayed_at", "timestamp", "Claim of the replay that is writing it; NULL outside of one"),
    ),
    comment="Rows that syncs could not write, each with the reason",
    writer=Engine.SPARK,
    operations=frozenset({"MERGE", "UPDATE", "DELETE"}),
    keys=("sync", "row_hash"),
)
"""The dead letters of all syncs."""


def accumulate(sync: SyncDeclaration) -> bool:
    """Whether dead letters stay until they are replayed, because their rows are not read again."""
    return sync.mode in (SyncMode.INSERT, SyncMode.CDC)


def store_dead_letters(
    spark: Spark, sync: SyncDeclaration, failed: "DataFrame | None", inputs: Mapping[str, InputVersion]
) -> None:
    """Write the rows of a pass that do not fit, in one commit; none if nothing differs.

    For a source that is read as a whole, those of earlier passes that it has no more, or that fit now, are removed.

    Args:
        spark: The session.
        sync: The sync.
        failed: The rows, with `ERRORS` and `ROW`; None if there are none.
        inputs: What they were read from.
    """
    accumulated, full_name = accumulate(sync), spark.full_name(DEAD_LETTERS)
    if failed is not None:
        spark.ensure_table(DEAD_LETTERS)
    elif accumulated or not dead_letters(spark, sync):
        return
    read_from = json.dumps({name: asdict(found) for name, found in sorted(inputs.items())})
    salt = literal(read_from if accumulated else "")
    rows = (
        f"SELECT {literal(sync.name)} AS sync, sha2(concat({salt}, reason, row), 256) AS row_hash, reason, row, "
        f"count(*) AS rows, {literal(read_from)} AS read_from "
        f"FROM (SELECT array_join({ERRORS}, '; ') AS reason, {ROW} AS row FROM {{failed}}) GROUP BY reason, row"
    )
    if failed is None:
        failed = spark.query(f"SELECT array('') AS {ERRORS}, '' AS {ROW} WHERE false")
    merge = (
        f"MERGE INTO {spark.sql_name(DEAD_LETTERS)} AS t USING ({rows}) AS s\n"
        "ON t.sync = s.sync AND t.row_hash = s.row_hash\n"
        "WHEN MATCHED AND t.rows <> s.rows THEN UPDATE SET rows = s.rows\n"
        "WHEN NOT MATCHED THEN INSERT (sync, row_hash, reason, row, rows, read_from) "
        "VALUES (s.sync, s.row_hash, s.reason, s.row, s.rows, s.read_from)"
    )
    if not accumulated:
        merge += f"\nWHEN NOT MATCHED BY SOURCE AND t.sync = {literal(sync.name)} THEN DELETE"
    bad = failed
    spark.commit(full_name, lambda: spark.rows(spark.sql(merge, failed=bad)))


def dead_letters(spark: Spark, sync: SyncDeclaration) -> int:
    """Return how many rows of a sync are among the dead letters."""
    try:
        spark.catalog.table(spark.full_name(DEAD_LETTERS))
    except TableMissing:
        return 0
    found = spark.query(
        f"SELECT coalesce(sum(rows), 0) AS n FROM {spark.sql_name(DEAD_LETTERS)} WHERE sync = {literal(sync.name)}"
    )
    return int(spark.rows(found)[0]["n"])
