"""SQL over the rows of affected keys: which of a table's, or of its quarantine's, they are, and which differ from it."""

from collections.abc import Callable, Sequence

from components.expectations.expectation_rules import Action, Expectations
from resources.declarations import TableDeclaration
from resources.delta.computed_inputs import FullRecompute
from resources.sql.spark_sql import at_version, identifier, literal, same_keys
from resources.sql.table_query import predicate_columns

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


def stored_of_keys(keys: Sequence[str], name: str, version: int, within: Callable[[str], str]) -> str:
    """Return the query for a table's rows that have an affected key.

    Args:
        keys: The columns of the keys.
        name: The table's name, in SQL.
        version: Its version.
        within: Returns a condition that holds for these keys in a relation.
    """
    return (
        f"SELECT s.* FROM {at_version(name, version)} AS s LEFT SEMI JOIN {AFFECTED} AS a "
        f"ON {same_keys(keys, 's', 'a')} WHERE {within('s')}"
    )


def no_changes(declaration: TableDeclaration, name: str) -> str:
    """Return the query that gives rows for `Spark.merge_changes`, of which there are none.

    Args:
        declaration: The table.
        name: Its name, in SQL.
    """
    keys = (f"{identifier(key)} AS {identifier(f'ratify_key_{key}')}" for key in declaration.keys)
    return f"SELECT {', '.join(keys)}, *, false AS ratify_present FROM {name} WHERE false"


def quarantined_of_keys(table: TableDeclaration, quarantine: str) -> str:
    """Return the query for the rows of a table's quarantine, a relation, that have an affected key of the table."""
    types = ", ".join(f"{identifier(key)} {table.column_types[key]}" for key in table.keys)
    return (
        f"SELECT s.* EXCEPT (ratify_of) FROM (SELECT *, from_json(row, '{types}') AS ratify_of FROM {quarantine}) AS s "
        f"LEFT SEMI JOIN {AFFECTED} AS a ON {same_keys(table.keys, 's.ratify_of', 'a')}"
    )


def differing(declaration: TableDeclaration, stored: str) -> str:
    """Return the query for what differs between computed rows, `{accepted}`, and stored ones.

    It gives the rows for `Spark.merge_changes`.
    """
    keys, columns = declaration.keys, declaration.column_names
    computed, found = (f"struct({', '.join(f'{side}.{identifier(name)}' for name in columns)})" for side in ("r", "t"))
    both = (f"coalesce(r.{identifier(key)}, t.{identifier(key)}) AS {identifier(f'ratify_key_{key}')}" for key in keys)
    return (
        f"SELECT {', '.join(both)}, {', '.join(f'r.{identifier(name)}' for name in columns)}, "
        "r.ratify_here IS NOT NULL AS ratify_present\n"
        "FROM (SELECT *, true AS ratify_here FROM {accepted}) AS r\n"
        f"FULL JOIN (SELECT *, true AS ratify_here FROM ({stored})) AS t ON {same_keys(keys, 'r', 't')}\n"
        f"WHERE NOT (r.ratify_here <=> t.ratify_here) OR NOT ({computed} <=> {found})"
    )


def stored_failures(expectations: Expectations, written: Sequence[tuple[TableDeclaration, str]]) -> list[str]:
    """Return the queries for how many rows fail expectations: one row for a table, `failing`, by their names.

    Those are counted that quarantine rows, and those that warn and name columns of the table only. What another one decided
    is no longer to be seen in any table.

    Args:
        expectations: The table's.
        written: The table, and its quarantine if it has one, with their names in SQL.
    """
    sql, found = expectations.dialect, dict[str, dict[str, str]]()
    for rule in expectations.rules:
        table, name = written[-1 if rule.action is Action.QUARANTINE else 0]
        if rule.action is Action.QUARANTINE:
            rows = "rows" if "rows" in table.column_names else "1"
            failing = f"sum(CASE WHEN array_contains(split(rule, ', '), {literal(rule.name)}) THEN {rows} ELSE 0 END)"
        elif rule.action is Action.WARN and set(predicate_columns(rule.predicate, sql.parsed_as)) <= set(table.column_names):
            failing = f"count_if(NOT coalesce({rule.predicate}, false))"
        else:
            continue
        found.setdefault(name, {})[rule.name] = f"CAST(coalesce({failing}, 0) AS BIGINT)"
    return [f"SELECT {sql.map_of(counts, 'bigint')} AS failing FROM {name}" for name, counts in found.items()]
