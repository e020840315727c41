"""SQL over the rows of affected keys: which of a table's, or of its quarantine's, they are, and which differ from it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.strategies.destination_changes import mirrored
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.computed_inputs import FullRecompute
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.sql.table_query import predicate_columns

AFFECTED = "ratify_affected"
"""View of the affected keys."""

# Types whose values are the same after they were written as JSON.
_SAME_IN_JSON = {"boolean", "tinyint", "smallint", "int", "bigint", "date", "string"}


def check_key_types(declaration: TableDeclaration) -> None:
    """Check that the rows in a table's quarantine tell its keys.

    Raises:
        FullRecompute: they do not.
    """
    for key in declaration.keys:
        if (found := declaration.column_types[key]) not in _SAME_IN_JSON and not found.startswith("decimal("):
            raise FullRecompute(
                f"its quarantine has rows as JSON, in which a {found}, such as its key {key}, is not exact", lasting=True
            )


def stored_of_keys(keys: Sequence[str], stored: str, within: Callable[[str], str], sql: RuleDialect = SPARK) -> str:
    """Return the query for a table's rows that have an affected key.

    Args:
        keys: The columns of the keys.
        stored: The table's rows: a relation.
        within: Returns a condition that holds for these keys in a relation.
        sql: The words of the engine that runs it.
    """
    return f"SELECT s.* FROM {stored} AS s SEMI JOIN {AFFECTED} AS a ON {sql.same(keys, 's', 'a')} WHERE {within('s')}"


def no_changes(declaration: TableDeclaration, name: str, sql: RuleDialect = SPARK) -> str:
    """Return the query that gives rows for `merge_changes`, of which there are none.

    Args:
        declaration: The table.
        name: Its name, in SQL.
        sql: The words of the engine that runs it.
    """
    keys = (f"{sql.identifier(key)} AS {sql.identifier(f'ratify_key_{key}')}" for key in declaration.keys)
    return f"SELECT {', '.join(keys)}, *, false AS ratify_present, false AS ratify_found FROM {name} WHERE false"


def quarantined_of_keys(table: TableDeclaration, quarantine: str, sql: RuleDialect = SPARK) -> str:
    """Return the query for the rows of a table's quarantine, a relation, that have an affected key of the table."""
    same = sql.same(table.keys, "s.ratify_of", "a")
    row = sql.row_of("row", {key: table.column_types[key] for key in table.keys})
    return (
        f"SELECT s.* {sql.excluding} (ratify_of) FROM (SELECT *, {row} AS ratify_of "
        f"FROM {quarantine}) AS s SEMI JOIN {AFFECTED} AS a ON {same}"
    )


def differing(declaration: TableDeclaration, rows: str, stored: str, sql: RuleDialect = SPARK) -> str:
    """Return the query for what differs between computed rows and stored ones, both relations: rows for `merge_changes`.

    Args:
        declaration: The table.
        rows: The computed ones.
        stored: The stored ones.
        sql: The words of the engine that runs it.
    """
    return mirrored(declaration.keys, declaration.column_names, rows, stored, sql=sql)


def stored_failures_by_duckdb(
    session: DuckDBSession, expectations: Expectations, written: Sequence[TableDeclaration]
) -> Mapping[str, int]:
    """Return how many rows of written tables fail expectations, counted by DuckDB (see `stored_failures`)."""
    return stored_failures(expectations, [(each, attached(each.table_name)) for each in written], session.records)


def stored_failures(
    expectations: Expectations,
    written: Sequence[tuple[TableDeclaration, str]],
    records: Callable[[str], Sequence[Mapping[str, Any]]],
) -> Mapping[str, int]:
    """Return how many rows of written tables fail expectations, by their names.

    Those are counted that quarantine rows, and those that warn and name columns of the table only. What another one decided
    is no longer to be seen in any table.

    Args:
        expectations: The table's.
        written: The table, and its quarantine if it has one, with their names in SQL; empty where one has no rows.
        records: Runs a query, and returns its rows.
    """
    sql, found, failed = expectations.dialect, dict[str, dict[str, str]](), dict[str, int]()
    for rule in expectations.rules:
        table, name = written[-1 if rule.action is Action.QUARANTINE else 0]
        if rule.action is Action.QUARANTINE:
            rows = "rows" if "rows" in table.column_names else "1"
            failing = f"sum(CASE WHEN array_contains(split(rule, ', '), {sql.literal(rule.name)}) THEN {rows} ELSE 0 END)"
        elif rule.action is Action.WARN and set(predicate_columns(rule.predicate, sql.parsed_as)) <= set(table.column_names):
            failing = f"count_if(NOT coalesce({rule.predicate}, false))"
        else:
            continue
        if name:
            found.setdefault(name, {})[rule.name] = f"CAST(coalesce({failing}, 0) AS BIGINT)"
        else:
            failed[rule.name] = 0
    texts = [f"SELECT {sql.map_of(counts, 'bigint')} AS failing FROM {name}" for name, counts in found.items()]
    rows = records(" UNION ALL ".join(texts)) if texts else []
    return failed | {name: failing for row in rows for name, failing in row["failing"].items()}
