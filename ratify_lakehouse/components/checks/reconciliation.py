"""Reconciliation of silver with bronze: no row is lost and none is doubled between two tables.

A query beside the tables counts what became of each row; the functions here check that the counts add up. DuckDB counts
what Spark wrote: the same rows, read by an engine that had no part in writing them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached


@dataclass(frozen=True)
class Reconciliation:
    """A query that counts what became of the rows of tables.

    Attributes:
        sql: File of the query (DuckDB SQL), in which `{name}` stands for a table.
        tables: Tables by these names; among them `silver`, whose check it is.
        more: Other SQL text by its names in the query.
    """

    sql: Path
    tables: Mapping[str, TableDeclaration]
    more: Mapping[str, str] = field(default_factory=dict[str, str])

    def counts(self, session: DuckDBSession) -> dict[str, int]:
        """Return the counts, by name."""
        names = {name: attached(table.table_name) for name, table in self.tables.items()}
        return session.records(self.sql.read_text().format(**names, **self.more))[0]


def records_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check that each record that a stream read is in silver, in quarantine, dropped, late, or a duplicate.

    Args:
        counts: `bronze`, `silver`, `quarantine`: rows in the tables; `orphans`: rows of silver or quarantine without a
            record in bronze; `doubled`: rows of both beyond one for each record, and of silver beyond one for each key; the
            others: sums in the stream's ledger.
    """
    outcomes = ("silver", "dropped", "quarantine", "duplicates", "late")
    equation = f"{counts['records']:,} records = " + " + ".join(f"{name} {counts[name]:,}" for name in outcomes)
    waiting = counts["bronze"] - counts["records"]
    faults = {
        "the sum differs": counts["records"] != sum(counts[name] for name in outcomes),
        f"the ledger has {counts['accepted']:,} in silver": counts["accepted"] != counts["silver"],
        f"the ledger has {counts['quarantined']:,} in quarantine": counts["quarantined"] != counts["quarantine"],
        f"bronze has {counts['bronze']:,}": waiting < 0,
        f"{counts['orphans']:,} rows have no record in bronze": counts["orphans"],
        f"{counts['doubled']:,} rows occur more than once": counts["doubled"],
    }
    return reconciled(f"{equation}; {waiting:,} of bronze are not read yet", faults, {**counts, "waiting": waiting})


def reconciled(equation: str, faults: Mapping[str, object], counts: Mapping[str, int]) -> Finding:
    """Return the finding of a reconciliation: it passes if none of `faults`, by what they are called, is true."""
    found = "; ".join(fault for fault, is_one in faults.items() if is_one)
    return Finding(not found, f"Not reconciled: {equation}, but {found}." if found else f"{equation}.", dict(counts))
