"""What a sync needs of the engine that runs its queries: Spark or DuckDB here, or a SQL warehouse of a workspace."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.declarations import TableDeclaration

Rows = Any
"""Rows of a query: a DataFrame of Spark, or the text of a query for DuckDB or a warehouse."""

_PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class RowQueries(Protocol):
    """Runs queries in its SQL."""

    def full_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name, with the catalog's."""
        ...

    def query(self, text: str, **relations: Rows) -> Rows:
        """Return the rows of a query in which `{name}` stands for the rows given by that name; nothing is run."""
        ...

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """Run a query and return its rows."""
        ...

    def computed(self, frame: Rows) -> Rows:
        """Return rows for several uses, which need not compute them again."""
        ...


def placed(text: str, relations: Mapping[str, Rows]) -> str:
    """Return the text of a query in which `{name}` stands for the query given by that name, and `{{` for a brace."""

    def relation(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"({relations[name]})" if name else found.group()[0]

    return _PLACE.sub(relation, text)


def quoted(sql: RuleDialect, text: str) -> str:
    """Return a string literal for a query over relations, where a brace of the text would begin the name of one."""
    return sql.literal(text).replace("{", "{{").replace("}", "}}")
