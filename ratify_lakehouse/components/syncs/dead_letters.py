"""Rows of a sync's source that do not fit its destination, each with the reason, until it fits or the source lost it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.strategies.destination_changes import as_named, change_columns, rewritten
from ratify_lakehouse.components.syncs.converted_rows import ERRORS, ROW
from ratify_lakehouse.components.syncs.lossless_values import sql_name
from ratify_lakehouse.components.syncs.row_queries import Rows, quoted
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_tables import SyncTables
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import TableMissing

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
    tables: SyncTables,
    sync: SyncDeclaration,
    failed: Rows | None,
    source: SourceRows,
    found_by: FindingPass | None = None,
    table_id: str = "",
) -> None:
    """Write the rows of a pass that do not fit, in one commit; none if nothing differs.

    For a source that is read as a whole, those of earlier passes that it has no more, or that fit now, are removed.

    Args:
        tables: The engine.
        sync: The sync.
        failed: The rows, with `ERRORS` and `ROW`; None if there are none.
        source: What they are rows of.
        found_by: The pass of the strategy append. Its letters count once it has committed.
        table_id: The id of the destination, in that strategy.

    Raises:
        As `SyncTables.update`.
    """
    sql, accumulated = tables.sql, accumulate(sync)
    if failed is None:
        if not accumulated and dead_letters(tables, sync):
            rewrite_letters(tables, of_sync(sync), present="false")
        return
    tables.ensure_table(DEAD_LETTERS)
    # Events that are read twice are the same ones; rows that a pass inserts, or would, are its own.
    found = quoted(sql, found_by.to_json() if found_by else "")
    row, rows = map(sql.identifier, ("row", "rows"))
    values = {
        "sync": sql.literal(sync.name),
        "row_hash": sql.sha256.format(f"concat({found}, reason, {row})"),
        "reason": "reason",
        "row": row,
        "rows": "count(*)",
        "read_from": quoted(sql, json.dumps({name: asdict(read) for name, read in sorted(source.inputs.items())})),
        "replayed_at": f"CAST(NULL AS {sql_name(sql, 'timestamp')})",
        "found_by": f"nullif({found}, '')",
        "types": quoted(sql, json.dumps(source.letter_types)),
        "destination": f"nullif({sql.literal(f'{tables.full_name(sync.table)} {table_id}' if table_id else '')}, '')",
    }
    listed = as_named(values, sql)
    reason = sql.joined.format(ERRORS, "'; '")
    of_rows = f"SELECT {reason} AS reason, {ROW} AS {row} FROM {{failed}}"
    letters = tables.computed(tables.query(f"SELECT {listed} FROM ({of_rows}) GROUP BY reason, {row}", failed=failed))
    # Of a letter that is there, only how many of its rows there are may be new.
    known = {name: f"coalesce(t.{sql.identifier(name)}, s.{sql.identifier(name)})" for name in values}
    known = {**known, "rows": f"coalesce(s.{rows}, t.{rows})"}
    for name in ("replayed_at", "found_by", "destination"):
        known[name] = f"CASE WHEN t.ratify_here THEN t.{name} ELSE s.{name} END"
    columns = change_columns(DEAD_LETTERS.keys, known, sql)
    differs = f"(s.ratify_here AND (t.ratify_here IS NULL OR s.{rows} <> t.{rows}))"
    tables.update(
        DEAD_LETTERS,
        f"SELECT {columns}, s.ratify_here IS NOT NULL AS ratify_present, t.ratify_here IS NOT NULL AS ratify_found "
        "FROM (SELECT *, true AS ratify_here FROM {letters}) AS s FULL JOIN "
        f"(SELECT *, true AS ratify_here FROM {{stored}} AS t WHERE {of_sync(sync)}) AS t "
        f"ON {sql.same(DEAD_LETTERS.keys, 's', 't')} WHERE {differs}{'' if accumulated else ' OR s.ratify_here IS NULL'}",
        letters=letters,
    )


def of_sync(sync: SyncDeclaration) -> str:
    """Return the condition that a letter, `t`, is of a sync, whose name is a plain identifier."""
    return f"t.sync = '{sync.name}'"


def rewrite_letters(
    tables: SyncTables, where: str, values: Mapping[str, str] | None = None, present: str = "true", **relations: Rows
) -> None:
    """Change or delete dead letters in one commit: see `rewritten`.

    Raises:
        As `SyncTables.update`.
    """
    keys, columns = DEAD_LETTERS.keys, DEAD_LETTERS.column_names
    text = rewritten(keys, columns, where, tables.sql, values=values, present=present)
    tables.update(DEAD_LETTERS, text, **relations)


def settle_dead_letters(tables: SyncTables, sync: SyncDeclaration) -> None:
    """Keep the dead letters of passes that have committed, and remove those of passes that cannot commit any more.

    The rows of the latter were read again by a pass that has committed, which has inserted them or found them itself. So
    it is with those of a destination that was dropped: the one that was created again gets the rows of the whole source.

    Args:
        tables: The engine.
        sync: The sync, of the strategy append.

    Raises:
        As `SyncTables.update`.
    """
    position, sql = tables.position, tables.sql
    try:
        tables.catalog.table(tables.full_name(DEAD_LETTERS))
        table_id = tables.catalog.table(position.full_name).table_id or ""
    except TableMissing:
        return
    tables.ensure_table(DEAD_LETTERS)
    name = f"{position.full_name} "
    of_table, of_this = f"left(t.destination, {len(name)}) = {sql.literal(name)}", sql.literal(name + table_id)
    of_another = f"coalesce({of_table} AND t.destination <> {of_this}, false)"
    text = (
        f"SELECT DISTINCT t.found_by, {of_another} AS of_another FROM {{letters}} AS t "
        f"WHERE {of_sync(sync)} AND (t.found_by IS NOT NULL OR {of_another})"
    )
    committed, overtaken, others = list[str](), list[str](), False
    for row in tables.rows(tables.query(text, letters=tables.rows_now(DEAD_LETTERS))):
        if row["of_another"]:
            others = True
            continue
        found_by = FindingPass(**json.loads(row["found_by"]))
        # First: a pass that cannot follow this position, and has not committed when the history is read, never will.
        until = position.inserted_until(found_by.app_id)
        if position.has_record(found_by.id, found_by.after):
            committed.append(row["found_by"])
        elif until is not None and until >= found_by.stopped_at:
            overtaken.append(row["found_by"])
    if not (others or committed or overtaken):
        return
    of_committed, of_overtaken = (_found_by(sql, passes) for passes in (committed, overtaken))
    rewrite_letters(
        tables,
        f"{of_sync(sync)} AND ({of_another} OR {of_committed} OR {of_overtaken})",
        {"found_by": f"CASE WHEN NOT {of_committed} THEN t.found_by END"},
        present=f"NOT ({of_another} OR {of_overtaken})",
    )


def _found_by(sql: RuleDialect, passes: Iterable[str]) -> str:
    """The condition that one of these passes has found a letter."""
    listed = ", ".join(quoted(sql, each) for each in passes)
    return f"coalesce(t.found_by IN ({listed}), false)" if listed else "false"


def dead_letters(tables: SyncTables, sync: SyncDeclaration) -> int:
    """Return how many rows of a sync are among the dead letters."""
    rows = tables.sql.identifier("rows")
    text = f"SELECT coalesce(sum(t.{rows}), 0) AS n FROM {{letters}} AS t WHERE {of_sync(sync)}"
    return int(tables.rows(tables.query(text, letters=tables.rows_now(DEAD_LETTERS)))[0]["n"])
