"""SQL for what a sync changes in its destination: the rows for `Spark.merge_changes`, and for that of DuckDB.

Each row has the keys as `ratify_key_<name>`, the columns that are written, `ratify_present` (false: the row is deleted) and
`ratify_found` (whether the destination has such a row).
"""

from collections.abc import Mapping, Sequence

from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents
from ratify_lakehouse.sql.spark_sql import identifier

OPERATION = "ratify_operation"
"""Column of the converted rows with the operation of an event of change."""


def counted(keys: Sequence[str], sql: RuleDialect = SPARK) -> str:
    """Return the query for how many of `{changes}` insert, update and delete rows, and whether two have the same keys."""
    names = [f"ratify_key_{key}" for key in keys]
    struct = sql.struct.format(", ".join(sql.field.format(sql.identifier(name)) for name in names))
    return (
        "SELECT count(*) FILTER (WHERE ratify_present AND NOT ratify_found) AS inserted, "
        "count(*) FILTER (WHERE ratify_present AND ratify_found) AS updated, "
        "count(*) FILTER (WHERE NOT ratify_present) AS deleted, "
        f"count(*) > count(DISTINCT {struct}) AS doubled FROM {{changes}}"
    )


def merged(keys: Sequence[str], columns: Sequence[str], rows: str, stored: str, sql: RuleDialect = SPARK) -> str:
    """Return the changes that give a destination the rows of a source, and leave its others as they are.

    Args:
        keys: Columns that identify a row.
        columns: Those that are written, the keys among them.
        rows: The source's rows, one for each of its keys: a relation.
        stored: The destination's.
        sql: The words of the engine that runs it.
    """
    others = [name for name in columns if name not in keys]
    return (
        f"SELECT {_keys(keys, 'r', sql)}, {_listed(columns, 'r', sql)}, true AS ratify_present, "
        "t.ratify_here IS NOT NULL AS ratify_found\n"
        f"FROM {rows} AS r LEFT JOIN {_here(columns, stored, sql)} AS t ON {sql.same(keys, 'r', 't')}\n"
        f"WHERE t.ratify_here IS NULL OR NOT ({sql.same(others, 'r', 't')})"
    )


def mirrored(
    keys: Sequence[str],
    columns: Sequence[str],
    rows: str,
    stored: str,
    *,
    scope: Sequence[str] = (),
    withheld: str = "",
    tracked: str = "",
    sql: RuleDialect = SPARK,
) -> str:
    """Return the changes that also delete what the source does not have.

    Args:
        keys: As in `merged`.
        columns: As in `merged`.
        rows: As in `merged`.
        stored: As in `merged`.
        scope: Columns whose values some row of the source must have, so that a row is deleted.
        withheld: Relation with keys of rows that are not deleted; empty if there is none.
        tracked: Relation with the keys of the only rows that are deleted; empty: all.
        sql: As in `merged`.
    """
    joins, conditions = list[str](), ["r.ratify_here IS NULL"]
    others = [name for name in columns if name not in keys]
    if scope:
        parents = f"SELECT DISTINCT {_listed(scope, 'p', sql)}, true AS ratify_here FROM {rows} AS p"
        joins.append(f"LEFT JOIN ({parents}) AS p ON {sql.same(scope, 't', 'p')}")
        conditions.append("p.ratify_here IS NOT NULL")
    for relation, alias, wanted in ((withheld, "w", "IS NULL"), (tracked, "o", "IS NOT NULL")):
        if relation:
            found = f"SELECT DISTINCT {_listed(keys, alias, sql)}, true AS ratify_here FROM {relation} AS {alias}"
            joins.append(f"LEFT JOIN ({found}) AS {alias} ON {sql.same(keys, 't', alias)}")
            conditions.append(f"{alias}.ratify_here {wanted}")
    quoted, both_keys = sql.identifier, sql.same(keys, "r", "t")
    both = (f"coalesce(r.{quoted(key)}, t.{quoted(key)}) AS {quoted(f'ratify_key_{key}')}" for key in keys)
    return (
        f"SELECT {', '.join(both)}, {_listed(columns, 'r', sql)}, r.ratify_here IS NOT NULL AS ratify_present, "
        "t.ratify_here IS NOT NULL AS ratify_found\n"
        f"FROM {_here(columns, rows, sql)} AS r FULL JOIN {_here(columns, stored, sql)} AS t ON {both_keys}\n"
        + "".join(f"{join}\n" for join in joins)
        + "WHERE (r.ratify_here IS NOT NULL AND (t.ratify_here IS NULL OR "
        f"NOT ({sql.same(others, 'r', 't')})))\n   OR ({' AND '.join(conditions)})"
    )


def applied(keys: Sequence[str], columns: Sequence[str], events: ChangeEvents, rows: str, stored: str, deleted: str) -> str:
    """Return the changes that events make, in whatever order they come: of a row the event of greatest sequence counts.

    A deletion counts before another event of its key with the same sequence; of two others the one that was applied first
    does. Truncation leaves rows of the same sequence.

    Args:
        keys: As in `merged`.
        columns: As in `merged`.
        events: What the events' columns mean.
        rows: The events, with `OPERATION`: a relation.
        stored: The destination's rows.
        deleted: The deletions of earlier events (see `deletions`): a relation.
    """
    sequence = identifier(events.sequence_by)
    deletes, truncates = _is(events.apply_as_deletes), _is(events.apply_as_truncates)
    key_names = [identifier(f"ratify_key_{key}") for key in keys]
    grouped = ", ".join(f"e.{identifier(key)} AS {name}" for key, name in zip(keys, key_names, strict=True))
    to_stored, to_deleted = (
        " AND ".join(f"x.{name} <=> {side}.{identifier(key)}" for key, name in zip(keys, key_names, strict=True))
        for side in ("t", "d")
    )
    all_before = (
        f"(SELECT max({sequence}) FROM (SELECT {sequence} FROM {rows} AS e WHERE {truncates} "
        f"UNION ALL SELECT {sequence} FROM {deleted} WHERE truncated))"
    )
    newest = ", ".join(f"newest.{identifier(name)}" for name in columns)
    return (
        f"WITH touched AS (SELECT {grouped}, max_by({_struct(columns, 'e')}, e.{sequence}) "
        f"FILTER (WHERE NOT {deletes}) AS newest, max(e.{sequence}) FILTER (WHERE {deletes}) AS deleted_at\n"
        f"  FROM {rows} AS e WHERE NOT {truncates} GROUP BY {', '.join(f'e.{identifier(key)}' for key in keys)}),\n"
        f"placed AS (SELECT x.*, t.ratify_here, x.newest.{sequence} IS NOT NULL "
        f"AND (t.{sequence} IS NULL OR x.newest.{sequence} > t.{sequence}) AS wins,\n"
        f"  t.{sequence} AS stored_at, greatest(x.deleted_at, d.{sequence}) AS gone_at\n"
        f"  FROM touched AS x LEFT JOIN {_here(columns, stored)} AS t ON {to_stored}\n"
        f"  LEFT JOIN (SELECT * FROM {deleted} WHERE NOT truncated) AS d ON {to_deleted}),\n"
        f"latest AS (SELECT *, if(wins, newest.{sequence}, stored_at) AS at FROM placed),\n"
        f"decided AS (SELECT *, at IS NOT NULL AND coalesce(at > gone_at, true) AND coalesce(at >= {all_before}, true) "
        f"AS alive FROM latest)\n"
        f"SELECT {', '.join(key_names)}, {newest}, alive AS ratify_present, ratify_here IS NOT NULL AS ratify_found\n"
        "FROM decided WHERE (alive AND wins) OR (NOT alive AND ratify_here IS NOT NULL)\n"
        f"UNION ALL SELECT {', '.join(f't.{identifier(key)}' for key in keys)}, {_listed(columns, 't')}, false, true\n"
        f"FROM {_here(columns, stored)} AS t LEFT ANTI JOIN touched AS x ON {to_stored}\n"
        f"WHERE t.{sequence} < {all_before}"
    )


def rewritten(
    keys: Sequence[str],
    columns: Sequence[str],
    where: str,
    sql: RuleDialect,
    *,
    values: Mapping[str, str] | None = None,
    present: str = "true",
) -> str:
    """Return the changes to those of the `{stored}` rows of a table, `t`, that meet a condition.

    Args:
        keys: As in `merged`.
        columns: All columns of the table.
        where: The condition.
        sql: As in `merged`.
        values: Expressions of columns that change; the others stay.
        present: The condition that the row stays; otherwise it is deleted.
    """
    stored = {name: f"t.{sql.identifier(name)}" for name in columns}
    named = {f"ratify_key_{key}": stored[key] for key in keys} | stored | dict(values or {})
    return (
        f"SELECT {as_named(named, sql)}, {present} AS ratify_present, true AS ratify_found "
        f"FROM {{stored}} AS t WHERE {where}"
    )


def change_columns(keys: Sequence[str], values: Mapping[str, str], sql: RuleDialect) -> str:
    """Return the columns of a change, but for `ratify_present` and `ratify_found`: the keys, and the table's columns.

    Args:
        keys: As in `merged`.
        values: An expression for each column of the table.
        sql: As in `merged`.
    """
    return as_named({f"ratify_key_{key}": values[key] for key in keys} | dict(values), sql)


def as_named(values: Mapping[str, str], sql: RuleDialect) -> str:
    """Return a list of expressions under their names."""
    return ", ".join(f"{value} AS {sql.identifier(name)}" for name, value in values.items())


def deletions(keys: Sequence[str], events: ChangeEvents, rows: str) -> str:
    """Return the query for the deletions among events: the keys, the sequence, and whether all rows are deleted.

    They outlive the rows, so that an event that comes late, of lower sequence, does not bring a row back.
    """
    sequence, listed = identifier(events.sequence_by), ", ".join(f"e.{identifier(key)}" for key in keys)
    nulls = ", ".join(f"NULL AS {identifier(key)}" for key in keys)
    return (
        f"SELECT {listed}, max(e.{sequence}) AS {sequence}, false AS truncated FROM {rows} AS e "
        f"WHERE {_is(events.apply_as_deletes)} GROUP BY {listed}\n"
        f"UNION ALL SELECT {nulls}, max(e.{sequence}), true FROM {rows} AS e WHERE {_is(events.apply_as_truncates)} "
        f"HAVING count(*) > 0"
    )


def operations_in(operations: Sequence[str], operation: str, sql: RuleDialect = SPARK) -> str:
    """Return the condition that the operation of an event is one of these."""
    return f"coalesce({operation} IN ({', '.join(map(sql.literal, operations))}), false)" if operations else "false"


def _is(operations: Sequence[str]) -> str:
    return operations_in(operations, f"e.{OPERATION}")


def _keys(keys: Sequence[str], side: str, sql: RuleDialect = SPARK) -> str:
    return ", ".join(f"{side}.{sql.identifier(key)} AS {sql.identifier(f'ratify_key_{key}')}" for key in keys)


def _listed(columns: Sequence[str], side: str, sql: RuleDialect = SPARK) -> str:
    return ", ".join(f"{side}.{sql.identifier(name)}" for name in columns)


def _struct(columns: Sequence[str], side: str) -> str:
    return f"struct({_listed(columns, side)})"


def _here(columns: Sequence[str], relation: str, sql: RuleDialect = SPARK) -> str:
    return f"(SELECT {sql.listed(columns)}, true AS ratify_here FROM {relation})"
