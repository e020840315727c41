"""Queries that have to give one row for each record of a stream, whatever batch it is in and whenever it is read."""

from ratify_lakehouse.errors import InvalidDeclaration
from ratify_lakehouse.sql.table_query import TableQuery, syntax_tree

ABSENT = "timestamp_type"
"""Column of a table of records that a quarantine does not keep, so that a replay could not give it."""


def check_by_record(query: TableQuery, where: str) -> None:
    """Check that a query gives one row for each record of its one table, computed from that record alone.

    Args:
        query: Reads a table of records.
        where: Names the query in errors, such as its file.

    Raises:
        InvalidDeclaration: it reads several tables, leaves out or combines records, or reads the clock.
    """
    from sqlglot import exp

    if len(query.inputs) != 1:
        shown = ", ".join(map(str, query.inputs)) or "none"
        raise InvalidDeclaration(
            f"{where}: a stream's query must read one table of records, but this one reads {shown}. Join other tables in "
            "a SqlTable that reads this one."
        )
    combining: dict[type, str] = {
        exp.Where: "WHERE",
        exp.Join: "JOIN",
        exp.Group: "GROUP BY",
        exp.Having: "HAVING",
        exp.Qualify: "QUALIFY",
        exp.Distinct: "DISTINCT",
        exp.Limit: "LIMIT",
        exp.Window: "OVER",
        exp.SetOperation: "UNION",
        exp.Lateral: "LATERAL VIEW",
        exp.UDTF: "a function that returns several rows",
        exp.AggFunc: "an aggregate",
    }
    changing: dict[type, str] = {
        exp.CurrentTimestamp: "the clock",
        exp.CurrentDate: "the clock",
        exp.Rand: "a random number",
        exp.Uuid: "a random number",
    }
    parsed = syntax_tree(query.text, query.dialect)
    for node in parsed.walk():
        if kind := next((name for type_, name in combining.items() if isinstance(node, type_)), None):
            raise InvalidDeclaration(
                f"{where}: a stream's query must return one row for each record, but this one has {kind}. Drop records by "
                "an expectation, and combine them in a SqlTable that reads this one."
            )
        if kind := next((name for type_, name in changing.items() if isinstance(node, type_)), None):
            raise InvalidDeclaration(
                f"{where}: a stream's query must return the same row for a record each time, but this one reads {kind}. "
                "Kafka's time of the record is its `timestamp`."
            )
        if isinstance(node, exp.Column) and node.name.lower() == ABSENT:
            raise InvalidDeclaration(
                f"{where}: a stream's query cannot read {ABSENT}, which its quarantine does not keep for a replay."
            )
