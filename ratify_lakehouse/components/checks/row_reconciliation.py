"""Reconciliation of a table with one of its inputs, row by row: none is lost and none is doubled on the way.

DuckDB counts what Spark wrote: the same rows, read by an engine that had no part in writing them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.checks.reconciliation import reconciled
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.table_query import TableName
from ratify_lakehouse.wording import counted

_SQL = Path(__file__).with_suffix(".sql")


@dataclass(frozen=True)
class InputRows:
    """How the rows of a table are those of one of its inputs.

    Attributes:
        table: The input.
        row_id: Columns of both tables that identify a row of the input.
        key: Columns of the input. Of its rows with the same values the table has one, and the others are duplicates.
    """

    table: TableName
    row_id: tuple[str, ...]
    key: tuple[str, ...]

    def counts(self, session: DuckDBSession, given: str, output: str, quarantine: str = "") -> dict[str, int]:
        """Return the counts of `rows_reconciled`, over DuckDB's names of relations.

        Args:
            session: Of DuckDB.
            given: The input.
            output: The table.
            quarantine: The rows that an expectation quarantined; empty where there is no such table.
        """
        relations = {"input": given, "output": output, "quarantine": quarantine or f"(FROM {output} LIMIT 0)"}
        return session.records(
            Template(_SQL.read_text()).substitute(relations, row_id=_listed(self.row_id), key=_listed(self.key))
        )[0]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(identifier, columns))


def rows_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check that each row of the input is in the table, in its quarantine, or a duplicate of one in the table.

    Args:
        counts: `input`, `output`, `quarantine`: rows, each relation counted by itself; `duplicates`: rows of the input that
            are in neither but have the key of a row in the table; `unaccounted`: other rows of the input that are in
            neither; `orphans`: rows of the table or quarantine without one in the input; `doubled`: rows of the table and
            quarantine beyond one for each row of the input, and of the table beyond one for each key.
    """
    total = counts["output"] + counts["quarantine"] + counts["duplicates"]
    equation = (
        f"{counted(counts['input'], 'row')} of the input = {counts['output']:,} in the table + {counts['quarantine']:,} "
        f"in quarantine + {counted(counts['duplicates'], 'duplicate')}"
    )
    faults = {
        "the sum differs": counts["input"] != total,
        f"{counts['unaccounted']:,} rows of the input are in neither table": counts["unaccounted"],
        f"{counts['orphans']:,} rows have no row in the input": counts["orphans"],
        f"{counts['doubled']:,} rows occur more than once": counts["doubled"],
    }
    return reconciled(equation, faults, counts)
