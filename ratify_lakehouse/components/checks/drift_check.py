"""The check that a table is as its declaration has it: it warns, and blocks nothing."""

from collections.abc import Iterator, Sequence

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.declaration_drift import Difference, differences
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import TableMissing

AS_DECLARED = "as_declared"


def drift_finding(table: str, found: Sequence[Difference]) -> Finding:
    """Check that a table does not differ from its declaration.

    Args:
        table: As an argument of `ratify drift`.
        found: Its differences.
    """
    numbers = {"differences": len(found), **{f"{each.aspect} {each.name}".rstrip(): _shown(each) for each in found}}
    if not found:
        return Finding(True, "Columns, comments and properties are as declared.", numbers)
    text = "; ".join(map(str, found))
    return Finding(False, f"It is not as declared: {text}. `ratify drift {table}` says what to do.", numbers)


def _shown(difference: Difference) -> str:
    return f"declared {difference.declared}, actual {difference.actual}. {difference.next_step}"


def drift_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check that a table does not differ from its declaration."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_drift",
        specs=[
            check_spec(AS_DECLARED, asset=key, description="Columns, comments and properties are those of the declaration.")
        ],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        log = duckdb.log(declaration.full_name(duckdb.catalog.connection.name))
        try:
            found = drift_finding(declaration.table_name, differences(log.refresh(), declaration))
        except TableMissing:
            found = Finding(True, "The table does not exist yet.", {"differences": 0})
        yield check_result(key, AS_DECLARED, found, dg.AssetCheckSeverity.WARN)

    return check
