"""Tables that are made of the rows of one validated query: those that pass, and those in quarantine."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from components.expectations.expectation_checks import check_results
from components.expectations.expectation_rules import Expectations
from components.expectations.validation import validation_result
from components.table_asset import asset_key, materialize_to_match
from resources.declarations import Column, TableDeclaration
from resources.spark.spark_engine import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quarantine_table(validated: TableDeclaration, landed: TableDeclaration, columns: Iterable[str]) -> TableDeclaration:
    """Return the quarantine of a table: the landed rows that fail an expectation, with its name.

    Args:
        validated: The table of the rows that pass.
        landed: The bronze table that both are made of.
        columns: Those of the landed row that quarantine keeps, as one JSON.
    """

    def raw(*names: str) -> tuple[str, ...]:
        return tuple(f"{landed.table_name}.{name}" for name in names)

    return TableDeclaration(
        layer=validated.layer,
        name=f"{validated.name}_quarantine",
        columns=(
            Column("_source_file", "string", sources=raw("_source_file")),
            Column("_source_row", "bigint", sources=raw("_source_row")),
            Column("rule", "string", "Names of the expectations that it fails, by comma"),
            Column("landed", "string", "The row as it landed, JSON", raw(*columns)),
            Column("_batch_id", "string", sources=raw("_batch_id")),
        ),
        comment=f"Landed rows of {validated.name} that fail an expectation, with its name",
        writer=validated.writer,
        operations=validated.operations,
        keys=("_source_file", "_source_row"),
    )


def write_validated(
    spark: Spark, validated: "DataFrame", expectations: Expectations, tables: Sequence[TableDeclaration], folder: Path
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Write each table by its query over the validated rows; yield the results, and then those of the expectations.

    Args:
        spark: The session.
        validated: The rows, as `Expectations.validated` gives them; they are computed once.
        expectations: By which they are validated; their checks are those of the first table.
        tables: Each with keys.
        folder: Has the query of each table, `<name>.sql`, in which `{validated}` stands for the rows.
    """
    key = asset_key(tables[0])
    with spark.cached(validated) as rows:
        for table in tables:
            query = (folder / f"{table.name}.sql").read_text()
            yield materialize_to_match(spark, table, lambda query=query: spark.sql(query, validated=rows))
        (counted,) = spark.rows(spark.sql(expectations.counted("{validated}"), validated=rows))
    yield from check_results(expectations, key, validation_result(counted))
