"""The tables of the sample by their names, and their queries over rows that a test gives."""

from typing import Any

from ratify_lakehouse.components.sql_table import ValidatedQuery, split_rows
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.ingest.file_source import Source
from tests.engines.lakehouse import Lakehouse


def source_of(table: str) -> Source:
    """The landed files of a bronze table, `schema.table`."""
    (found,) = [source for source in declared_tables().sources if source.table_name == table]
    return found


def query_of(table: str) -> ValidatedQuery:
    """The table that a query makes, `schema.table`."""
    component = declared_tables().components[table]
    assert isinstance(component, SqlTable)
    return component.table


def text_over(table: ValidatedQuery) -> str:
    """The query, with each input as `{name}` without its schema."""
    return table.query.resolved(lambda name: f"{{{name.table}}}")


def validated(lake: Lakehouse, table: ValidatedQuery, **inputs: Any) -> Any:
    """The rows of the query over other inputs, as its expectations validate them."""
    return lake.spark.sql(table.expectations.validated(text_over(table)), **inputs)


def split(lake: Lakehouse, table: ValidatedQuery, **inputs: Any) -> tuple[Any, Any]:
    """The rows of the table and those of its quarantine, over other inputs."""
    types = lake.spark.sql(text_over(table), **inputs).columns
    rows = validated(lake, table, **inputs)
    accepted, quarantined = (lake.spark.sql(query, rows=rows) for query in split_rows(table, types))
    return accepted, quarantined
