"""What it costs to find a landed file in the ledger, among a thousand entries and among a million.

    python -m bench.ledger [--entries 1000 1000000] [--rounds 30] [--quick]

For each size it fills a ledger of its own, a thousand entries a commit, and measures three look-ups of 30 files by path and
by content, half of them known: with the index up to date (what a load batch does), with one commit of another machine to
read, and without an index, which is built. The first two must not grow: with the most entries they may take three times as
long as with the fewest. Baseline: the query that reads the whole ledger. It starts a catalog and Spark,
which creates the ledger.
"""

import argparse
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from rich.table import Table

from bench.ratios import console, timed, within_bounds
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.ledger.ledger_index import LedgerIndex
from ratify_lakehouse.settings import LAYERS, Settings

_COMMIT = 1_000
_TABLE = "bench"
_LOOKED_UP = 30


def sha256(number: int) -> str:
    """The content of an entry."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def fill(session: DuckDBSession, start: int, count: int) -> None:
    """Append entries, a thousand a commit."""
    for first in range(start, start + count, _COMMIT):
        entries = (
            "SELECT 'day-' || (n // 30) || '/file-' || n || '.csv', 'f' || n, sha256(n::VARCHAR), 1000, 'bronze.bench', "
            f"'{_TABLE}', 'loaded', 100, '', NULL, NULL, NULL, 'b' || (n // 30), now(), 0, n, 0.1, now() "
            f"FROM range({first}, {min(first + _COMMIT, start + count)}) AS given(n)"
        )
        session.append(LANDED_FILES, entries, [f"bench:{uuid4()}"])


def look_up(session: DuckDBSession, entries: int) -> None:
    """Look up 30 files, every second of them known."""
    numbers = [(number * 7919) % entries for number in range(_LOOKED_UP // 2)]
    paths = [f"day-{number // 30}/file-{number}.csv" for number in numbers] + [f"new-{n}.csv" for n in numbers]
    contents = [sha256(number) for number in numbers] + [sha256(-1 - number) for number in numbers]
    with LedgerIndex.opened(session) as index:
        found = index.held(_TABLE, paths, contents)
    if len(found) != len(set(numbers)):
        raise SystemExit(f"{len(found)} entries found instead of {len(set(numbers))}")


def scan(session: DuckDBSession, entries: int) -> None:
    """The same by a query over the whole table."""
    numbers = [(number * 7919) % entries for number in range(_LOOKED_UP // 2)]
    session.attach()
    session.rows(
        "SELECT path, sha256 FROM uc.ops.landed_files WHERE sha256 IN (SELECT unnest(?::VARCHAR[]))",
        [[sha256(number) for number in numbers]],
    )


def measure(entries: int, rounds: int) -> dict[str, float]:
    """Return the seconds of each kind of look-up."""
    console.print(f"filling a ledger with {entries:,} entries", style="dim")
    catalog = UnityCatalog()
    spark = Spark(catalog=catalog)
    catalog.ensure_schemas(LAYERS)
    spark.ensure_table(LANDED_FILES)
    spark.close()
    engine = DuckDB(catalog=catalog)
    with engine.session() as session:
        fill(session, 0, entries)
        shutil.rmtree(Settings().home / "ledger", ignore_errors=True)
        cold = timed(lambda: look_up(session, entries))
        warm = statistics.median(timed(lambda: look_up(session, entries)) for _ in range(rounds))
        behind = list[float]()
        for number in range(rounds):
            fill(session, entries + number * _LOOKED_UP, _LOOKED_UP)
            behind.append(timed(lambda: look_up(session, entries)))
        scanned = statistics.median(timed(lambda: scan(session, entries)) for _ in range(3))
    engine.close()
    return {"up to date": warm, "one commit behind": statistics.median(behind), "index built": cold, "scan": scanned}


def main() -> int:
    """Run it, print the figures, and return the exit code: 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs=2, default=[1_000, 1_000_000], help="the fewest and the most")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; the ratios mean nothing")
    options = parser.parse_args()
    sizes: list[int] = [100, 2_000] if options.quick else options.entries
    found = dict[int, dict[str, float]]()
    jars = Settings().jars
    for entries in sizes:
        with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
            os.environ["RATIFY_HOME"] = home
            with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
                found[entries] = measure(entries, 3 if options.quick else options.rounds)
    few, many = (found[entries] for entries in sizes)
    table = Table("look-up of 30 files", *(f"{entries:,} entries (ms)" for entries in sizes), "ratio")
    for name in few:
        table.add_row(name, f"{few[name] * 1000:.1f}", f"{many[name] * 1000:.1f}", f"{many[name] / few[name]:.2f}")
    console.print(table)
    aims = {"up to date": 3.0, "one commit behind": 3.0, "scan": None}
    met = within_bounds([(f"{name}, most against fewest", many[name] / few[name], aim, False) for name, aim in aims.items()])
    return 0 if met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
