"""Rows of a sync's source that do not fit its destination, each with the reason, until it fits or the source lost it."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ratify_lakehouse.components.syncs.converted_rows import ERRORS, ROW
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_position import SyncPosition
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.spark.overtaken_writes import write_unless_erased
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD_LETTERS = TableDeclaration(
    layer="ops",
    name="sync_dead_letters",
    columns=(
        Column("sync", "string", "Name of the sync"),
        Column("row_hash", "string", "SHA-256 of the row, and of what it was read from where each reading counts"),
        Column("reason", "string", "What does not fit"),
        Column("row", "string", "The row as the source has it, JSON with the exact values", pii=True),
        Column("rows", "bigint", "How many such rows there are"),
        Column("read_from", "string", "Versions of the source that it was read at first, JSON"),
        Column("replayed_at", "timestamp", "Claim of the replay that is writing it; NULL outside of one"),
        Column("found_by", "string", "Pass that found it, JSON, until it is known whether that has committed; NULL then"),
        Column("types", "string", "Types of the row's columns by their names, JSON"),
        Column(
            "destination",
            "string",
            "Of the strategy append: the table and its id, for one created again gets all rows again",
        ),
    ),
    comment="Rows that syncs could not write, each with the reason",
    writer=Engine.SPARK,
    operations=frozenset({"MERGE", "UPDATE", "DELETE"}),
    keys=("sync", "row_hash"),
)
"""The dead letters of all syncs."""


@dataclass(frozen=True)
class FindingPass:
    """The pass, of the strategy append, that found dead letters. One that is killed before its commit has found none.

    Attributes:
        id: Of its record.
        after: The version of the destination that its commit comes after.
        app_id: See `insertion_of`.
        stopped_at: It cannot commit any more once what that says is this version, or a later one.
    """

    id: str
    after: int
    app_id: str
    stopped_at: int

    def to_json(self) -> str:
        """Return it as the column `found_by` has it."""
        return json.dumps(asdict(self))


def accumulate(sync: SyncDeclaration) -> bool:
    """Whether dead letters stay until they are replayed, because their rows are not read again."""
    return sync.strategy in (SyncStrategy.APPEND, SyncStrategy.CDC)


def store_dead_letters(
    spark: Spark,
    sync: SyncDeclaration,
    failed: "DataFrame | None",
    source: SourceRows,
    before: int,
    found_by: FindingPass | None = None,
    table_id: str = "",
) -> None:
    """Write the rows of a pass that do not fit, in one commit; none if nothing differs.

    For a source that is read as a whole, those of earlier passes that it has no more, or that fit now, are removed.

    Args:
        spark: The session.
        sync: The sync.
        failed: The rows, with `ERRORS` and `ROW`; None if there are none.
        source: What they are rows of.
        before: The version of the table of dead letters before it was read.
        found_by: The pass of the strategy append. Its letters count once it has committed.
        table_id: The id of the destination, in that strategy.

    Raises:
        ReadBeforeErasure: a data subject was erased since.
    """
    accumulated, name, of_sync = accumulate(sync), spark.sql_name(DEAD_LETTERS), f"sync = {literal(sync.name)}"
    if failed is None:
        if not accumulated and dead_letters(spark, sync):
            delete = f"DELETE FROM {name} WHERE {of_sync}"
            spark.commit(spark.full_name(DEAD_LETTERS), lambda: spark.rows(spark.sql(delete)))
        return
    spark.ensure_table(DEAD_LETTERS)
    read_from = json.dumps({name: asdict(found) for name, found in sorted(source.inputs.items())})
    # Events that are read twice are the same ones; rows that a pass inserts, or would, are its own.
    found = found_by.to_json() if found_by else ""
    destination = f"{spark.full_name(sync.table)} {table_id}" if table_id else ""
    text = (
        f"SELECT {literal(sync.name)} AS sync, sha2(concat({literal(found)}, reason, row), 256) AS row_hash, reason, row, "
        f"count(*) AS rows, {literal(read_from)} AS read_from, nullif({literal(found)}, '') AS found_by, "
        f"{literal(json.dumps(source.letter_types))} AS types, nullif({literal(destination)}, '') AS destination "
        f"FROM (SELECT array_join({ERRORS}, '; ') AS reason, {ROW} AS row FROM {{failed}}) GROUP BY reason, row"
    )
    rows, same = spark.computed(spark.query(text, failed=failed)), "t.sync = s.sync AND t.row_hash = s.row_hash"
    differing = f"SELECT 1 FROM {{rows}} AS s LEFT ANTI JOIN {name} AS t ON {same} AND t.rows = s.rows"
    merge = (
        f"MERGE INTO {name} AS t USING {{rows}} AS s\nON {same}\n"
        "WHEN MATCHED AND t.rows <> s.rows THEN UPDATE SET rows = s.rows\n"
        "WHEN NOT MATCHED THEN INSERT (sync, row_hash, reason, row, rows, read_from, found_by, types, destination) "
        "VALUES (s.sync, s.row_hash, s.reason, s.row, s.rows, s.read_from, s.found_by, s.types, s.destination)"
    )
    if not accumulated:
        merge += f"\nWHEN NOT MATCHED BY SOURCE AND t.{of_sync} THEN DELETE"
        stored = f"(SELECT * FROM {name} WHERE {of_sync})"
        differing += f"\nUNION ALL SELECT 1 FROM {stored} AS t LEFT ANTI JOIN {{rows}} AS s ON {same}"
    if spark.rows(spark.query(f"{differing} LIMIT 1", rows=rows)):
        write_unless_erased(spark, DEAD_LETTERS, merge, rows, before)


def settle_dead_letters(spark: Spark, position: SyncPosition) -> None:
    """Keep the dead letters of passes that have committed, and remove those of passes that cannot commit any more.

    The rows of the latter were read again by a pass that has committed, which has inserted them or found them itself. So
    it is with those of a destination that was dropped: the one that was created again gets the rows of the whole source.

    Args:
        spark: The session.
        position: Of a sync of the strategy append.
    """
    try:
        spark.catalog.table(spark.full_name(DEAD_LETTERS))
        table_id = spark.catalog.table(position.full_name).table_id or ""
    except TableMissing:
        return
    spark.ensure_table(DEAD_LETTERS)
    name, full_name = spark.sql_name(DEAD_LETTERS), spark.full_name(DEAD_LETTERS)
    of_sync, table = f"sync = {literal(position.sync.name)}", f"{position.full_name} "
    of_another = f"coalesce(startswith(destination, {literal(table)}) AND destination <> {literal(table + table_id)}, false)"
    unsettled = f"FROM {name} WHERE {of_sync} AND (found_by IS NOT NULL OR {of_another})"
    statements = set[str]()
    for row in spark.rows(spark.query(f"SELECT DISTINCT found_by, {of_another} AS of_another {unsettled}")):
        if row["of_another"]:
            statements.add(f"DELETE FROM {name} WHERE {of_sync} AND {of_another}")
            continue
        found_by = FindingPass(**json.loads(row["found_by"]))
        # First: a pass that cannot follow this position, and has not committed when the history is read, never will.
        until = position.inserted_until(found_by.app_id)
        of_pass = f"{of_sync} AND found_by = {literal(row['found_by'])}"
        if position.has_record(found_by.id, found_by.after):
            statements.add(f"UPDATE {name} SET found_by = NULL WHERE {of_pass}")
        elif until is not None and until >= found_by.stopped_at:
            statements.add(f"DELETE FROM {name} WHERE {of_pass}")
    for statement in sorted(statements):
        spark.commit(full_name, lambda text=statement: spark.rows(spark.sql(text)))


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
