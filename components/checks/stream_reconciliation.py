"""ValidationResult on the tracker's records: none is lost and none is doubled between bronze and silver."""

from collections.abc import Mapping
from pathlib import Path

from components.checks.history_findings import Finding
from resources.duckdb.duckdb_engine import DuckDBSession


def count_records(session: DuckDBSession, bronze: str, silver: str, quarantine: str, ledger: str) -> dict[str, int]:
    """Count what became of the records; tables are named as DuckDB knows them, which had no part in writing them."""
    query = (Path(__file__).parent / "tracker_reconciled.sql").read_text()
    return session.records(query.format(bronze=bronze, silver=silver, quarantine=quarantine, ledger=ledger))[0]


def records_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check whether each record that was read is in silver, in quarantine, dropped, late, or a duplicate.

    Args:
        counts: From `count_records`. `bronze`, `silver`, `quarantine`: rows in the tables; the others: sums in the ledger.
    """
    fates = ("silver", "dropped", "quarantine", "duplicates", "late")
    said = f"{counts['records']:,} records = " + " + ".join(f"{name} {counts[name]:,}" for name in fates)
    waiting = counts["bronze"] - counts["records"]
    faults = [
        fault
        for fault, found in {
            "the sum is another": counts["records"] != sum(counts[name] for name in fates),
            f"the ledger has {counts['accepted']:,} in silver": counts["accepted"] != counts["silver"],
            f"the ledger has {counts['quarantined']:,} in quarantine": counts["quarantined"] != counts["quarantine"],
            f"bronze has {counts['bronze']:,}": waiting < 0,
        }.items()
        if found
    ]
    if faults:
        return Finding(False, f"Not reconciled: {said}, but {'; '.join(faults)}.", dict(counts))
    return Finding(True, f"{said}; {waiting:,} of bronze are not read yet.", {**counts, "waiting": waiting})
