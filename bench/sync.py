"""What a sync costs against other ways to merge rows into a table.

    python -m bench.sync [--rows 1000000] [--rounds 2]

The destination has a million rows of six columns. A source table has 1,000, 100,000 or 1,000,000 rows, of which each round
changes all, half of them new keys in the first round; it is merged into the destination: by a sync of the mode merge, with
its conversion, checks and record; by delta-rs's merge into a table by path, with rows in memory; and by Spark in two
statements, one MERGE that writes and one that deletes. The mirror deletes 1 % of the rows and changes 1 %; there the second
statement deletes what the source does not have.

Prints the rows of the source in a second, and the ratio of the medians: the fastest other way against the sync (aim: at
least 1.0 with 100,000 rows and more). Afterwards all destinations must have the same rows.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from components.syncs.sync_declaration import SyncDeclaration, SyncMode, SyncSource, whole_table
from components.syncs.sync_pass import SyncPass
from resources.duckdb.duckdb_engine import DuckDB
from resources.sql.table_query import TableName, TableQuery

SIZES = (1_000, 100_000, 1_000_000)
_COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12,2), placed TIMESTAMP, region INT, active BOOLEAN"
_PROPERTIES = "TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.enableRowTracking' = 'false')"


def _rows(first: int, last: int, round_: int) -> str:
    """The query for rows of these ids; each round has other values."""
    return (
        f"SELECT id, concat('customer ', id) AS name, CAST(id % 1000 + {round_} AS DECIMAL(12,2)) AS amount, "
        "timestamp_seconds(1700000000 + id) AS placed, CAST(id % 20 AS INT) AS region, id % 3 = 0 AS active "
        f"FROM range({first}, {last})"
    )


@dataclass(frozen=True)
class Merges:
    """The ways to merge a source into destinations that begin alike."""

    stack: WarmStack
    duckdb: DuckDB
    folder: Path
    mode: SyncMode

    @property
    def ways(self) -> dict[str, Callable[[], None]]:
        """By name."""
        return {"sync": self.by_sync, "delta-rs": self.by_delta_rs, "two statements": self.by_statements}

    def create(self, rows: int) -> None:
        """Create the source and the destinations, each of these with so many rows."""
        for name in ("by_sync", "by_statements", "source"):
            self._run(f"DROP TABLE IF EXISTS bronze.{name}")
            self._run(f"CREATE TABLE bronze.{name} ({_COLUMNS}) USING DELTA {_PROPERTIES}")
        for name in ("by_sync", "by_statements"):
            self._run(f"INSERT INTO bronze.{name} {_rows(0, rows, 0)}")
        write_deltalake(str(self.folder), self._arrow("by_sync"), mode="overwrite")

    def offer(self, text: str) -> None:
        """Give the source these rows."""
        self._run(f"INSERT OVERWRITE bronze.source {text}")

    def by_sync(self) -> None:
        """By a sync."""
        source = SyncSource(TableQuery.parsed(whole_table(TableName("bronze", "source")), "databricks", "the benchmark"))
        sync = SyncDeclaration("bench", source, TableName("bronze", "by_sync"), self.mode, ("id",))
        SyncPass(self.stack.spark, self.duckdb, sync).run()

    def by_statements(self) -> None:
        """By a MERGE, and for a mirror another one that deletes, in two commits."""
        self._run(
            "MERGE INTO bronze.by_statements AS t USING bronze.source AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        if self.mode is SyncMode.MIRROR:
            # Delta has no DELETE with a subquery.
            self._run(
                "MERGE INTO bronze.by_statements AS t USING bronze.source AS s ON t.id = s.id "
                "WHEN NOT MATCHED BY SOURCE THEN DELETE"
            )

    def by_delta_rs(self) -> None:
        """By delta-rs, which reads the source's files and merges into a table by path."""
        merge = DeltaTable(str(self.folder)).merge(self._arrow("source"), "t.id = s.id", source_alias="s", target_alias="t")
        merged = merge.when_matched_update_all().when_not_matched_insert_all()
        if self.mode is SyncMode.MIRROR:
            merged = merged.when_not_matched_by_source_delete()
        merged.execute()

    def check(self) -> None:
        """Compare the destinations."""
        compared = "bronze.by_sync EXCEPT TABLE bronze.by_statements"
        differing = self.stack.spark.sql(f"SELECT count(*) AS n FROM (TABLE {compared})")
        rows = [self.stack.spark.sql(f"SELECT count(*) AS n FROM bronze.{name}") for name in ("by_sync", "by_statements")]
        (differ,), *counts = ([row["n"] for row in self.stack.spark.rows(frame)] for frame in (differing, *rows))
        counts.append([DeltaTable(str(self.folder)).to_pyarrow_dataset().count_rows()])
        if differ or len({count for (count,) in counts}) > 1:
            raise SystemExit(f"the destinations differ ({differ} rows; {counts}), so nothing is measured")

    def _arrow(self, name: str) -> Any:
        files = [
            row["path"]
            for row in self.stack.spark.rows(
                self.stack.spark.sql(f"SELECT DISTINCT _metadata.file_path AS path FROM bronze.{name}")
            )
        ]
        with self.duckdb.session() as session:
            return session.con.sql(f"SELECT * FROM read_parquet({files!r})").to_arrow_table()

    def _run(self, text: str) -> None:
        self.stack.spark.sql(text).collect()


def measured(merges: Merges, rows: int, offers: Iterator[tuple[str, int]], rounds: int) -> tuple[dict[str, float], int]:
    """The median seconds of each way, and how many rows the source has."""
    merges.create(rows)
    seconds: dict[str, list[float]] = {name: [] for name in merges.ways}
    size = 0
    # The first round warms Spark.
    for _ in range(rounds + 1):
        text, size = next(offers)
        merges.offer(text)
        for name, merge in merges.ways.items():
            seconds[name].append(timed(merge))
            console.print(f"{merges.mode} of {size:,} rows, {name}: {seconds[name][-1]:.2f} s")
        merges.check()
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}, size


def _merged(rows: int, size: int) -> Iterator[tuple[str, int]]:
    round_ = 0
    while True:
        round_ += 1
        # Half of the ids are new in the first round, which is not counted.
        first = rows - size // 2
        yield _rows(first, first + size, round_), size


def _mirrored(rows: int) -> Iterator[tuple[str, int]]:
    round_, last = 0, rows
    while True:
        round_ += 1
        last -= rows // 100
        changed = last - rows // 100
        yield f"{_rows(0, changed, 0)} UNION ALL {_rows(changed, last, round_)}", last


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the destination (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=2, help="counted rounds (default 2)")
    given = parser.parse_args()
    ratios = list[tuple[str, float, float | None, bool]]()
    shown = Table("", "sync s", "delta-rs s", "two statements s", "sync rows/s")
    with warm_stack() as stack:
        duckdb = DuckDB(catalog=stack.catalog)
        cases = [
            *((f"merge of {size:,} rows", SyncMode.MERGE, _merged(given.rows, size)) for size in SIZES),
            ("mirror with 1% deleted and 1% changed", SyncMode.MIRROR, _mirrored(given.rows)),
        ]
        for name, mode, offers in cases:
            merges = Merges(stack, duckdb, stack.home / "by_delta_rs", mode)
            found, size = measured(merges, given.rows, offers, given.rounds)
            shown.add_row(name, *(f"{found[way]:.2f}" for way in merges.ways), f"{size / found['sync']:,.0f}")
            best = min(found["delta-rs"], found["two statements"])
            ratios.append(
                (f"{name}: fastest other way against sync", best / found["sync"], 1.0 if size >= 100_000 else None, True)
            )
        duckdb.close()
    console.print(shown)
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
