"""Reconciliation of silver with bronze: no row is lost and none is doubled between two tables.

A query beside the tables counts what became of each row; the functions here check that the counts add up. DuckDB counts
what Spark wrote: the same rows, read by an engine that had no part in writing them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.checks.history_findings import Finding
from resources.declarations import TableDeclaration
from resources.duckdb.duckdb_engine import ALIAS, DuckDBSession


@dataclass(frozen=True)
class Reconciliation:
    """A query that counts what became of the rows of tables.

    Attributes:
        sql: File of the query (DuckDB SQL), in which `{name}` stands for a table.
        tables: Tables by these names; among them `silver`, whose check it is.
    """

    sql: Path
    tables: Mapping[str, TableDeclaration]

    def counts(self, session: DuckDBSession) -> dict[str, int]:
        """Return the counts, by name."""
        names = {name: f"{ALIAS}.{table.layer}.{table.name}" for name, table in self.tables.items()}
        return count_relations(session, self.sql, **names)


def count_relations(session: DuckDBSession, sql: Path, **relations: str) -> dict[str, int]:
    """Return the one row of counts that a reconciliation query gives over relations, by DuckDB's names for them."""
    return session.records(sql.read_text().format(**relations))[0]


def rows_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check that each bronze row is in silver, in quarantine, or a duplicate of one in silver.

    Args:
        counts: `bronze`, `silver`, `quarantine`: rows; `duplicates`: bronze rows that are in neither but have the key of a
            row in silver; `unaccounted`: other bronze rows that are in neither; `orphans`: rows of silver or quarantine
            without a bronze row.
    """
    total = counts["silver"] + counts["quarantine"] + counts["duplicates"]
    passed = counts["bronze"] == total and not counts["unaccounted"] and not counts["orphans"]
    text = (
        f"bronze {counts['bronze']:,} = silver {counts['silver']:,} + quarantine {counts['quarantine']:,} + duplicates "
        f"{counts['duplicates']:,}"
    )
    if not passed:
        text = f"Not reconciled: {text} does not hold, or {counts['unaccounted']:,} bronze rows are in neither table, or "
        text += f"{counts['orphans']:,} rows have no bronze row."
    return Finding(passed, text, dict(counts))


def records_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check that each record that a stream read is in silver, in quarantine, dropped, late, or a duplicate.

    Args:
        counts: `bronze`, `silver`, `quarantine`: rows in the tables; the others: sums in the stream's ledger.
    """
    outcomes = ("silver", "dropped", "quarantine", "duplicates", "late")
    equation = f"{counts['records']:,} records = " + " + ".join(f"{name} {counts[name]:,}" for name in outcomes)
    waiting = counts["bronze"] - counts["records"]
    faults = [
        fault
        for fault, found in {
            "the sum differs": counts["records"] != sum(counts[name] for name in outcomes),
            f"the ledger has {counts['accepted']:,} in silver": counts["accepted"] != counts["silver"],
            f"the ledger has {counts['quarantined']:,} in quarantine": counts["quarantined"] != counts["quarantine"],
            f"bronze has {counts['bronze']:,}": waiting < 0,
        }.items()
        if found
    ]
    if faults:
        return Finding(False, f"Not reconciled: {equation}, but {'; '.join(faults)}.", dict(counts))
    return Finding(True, f"{equation}; {waiting:,} of bronze are not read yet.", {**counts, "waiting": waiting})
