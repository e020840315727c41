"""What a sync costs against other ways to merge rows into a table.

    python -m bench.sync [--rows 1000000] [--rounds 2]

The destination has a million rows of six columns. A source table has 1,000, 100,000 or 1,000,000 rows, of which each round
changes all, half of them new keys in the first round; it is merged into the destination: by a sync of the strategy merge,
with its conversion, checks and record, that DuckDB runs, and by one that Spark runs; by delta-rs's merge into a table by
path, with rows in memory; by a pipeline of dlt (dlthub) into such a table, by its strategy upsert; and by Spark in two
statements, one MERGE that writes and one that deletes. The mirror deletes 1 % of the rows and changes 1 %; there the second
statement deletes what the source does not have, and dlt has no way to do so.

Prints the rows of the source in a second, and the ratio of the medians: the fastest other way against the sync that DuckDB
runs (aim: at least 1.0 with 100,000 rows and more), and against the one that Spark runs. Afterwards all destinations must
have the same rows.
"""

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlt
from deltalake import DeltaTable, write_deltalake
from dlt.destinations import filesystem
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from ratify_lakehouse.components.syncs.sync_declaration import (
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.sql.table_query import TableName, TableQuery

WAYS = ("DuckDB", "Spark", "delta-rs", "dlt", "two statements")
SIZES = (1_000, 100_000, 1_000_000)
_COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12,2), placed TIMESTAMP, region INT, active BOOLEAN"
_DESTINATIONS = ("by_duckdb", "by_spark", "by_statements")
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
    strategy: SyncStrategy

    @property
    def ways(self) -> dict[str, Callable[[], None]]:
        """By name."""
        return {
            "DuckDB": lambda: self.by_sync(SyncEngine.DUCKDB),
            "Spark": lambda: self.by_sync(SyncEngine.SPARK),
            "delta-rs": self.by_delta_rs,
            **({"dlt": self.by_dlt} if self.strategy is SyncStrategy.MERGE else {}),
            "two statements": self.by_statements,
        }

    def create(self, rows: int) -> None:
        """Create the source and the destinations, each of these with so many rows."""
        for name in (*_DESTINATIONS, "source"):
            self._run(f"DROP TABLE IF EXISTS bronze.{name}")
            self._run(f"CREATE TABLE bronze.{name} ({_COLUMNS}) USING DELTA {_PROPERTIES}")
        for name in _DESTINATIONS:
            self._run(f"INSERT INTO bronze.{name} {_rows(0, rows, 0)}")
        write_deltalake(str(self.folder), self._arrow("by_statements"), mode="overwrite")
        if self.strategy is SyncStrategy.MERGE:
            shutil.rmtree(self.folder.parent / "by_dlt", ignore_errors=True)
            shutil.rmtree(self.folder.parent / "dlt", ignore_errors=True)
            self._load(self._arrow("by_statements"))

    def offer(self, text: str) -> None:
        """Give the source these rows."""
        self._run(f"INSERT OVERWRITE bronze.source {text}")

    def by_sync(self, engine: SyncEngine) -> None:
        """By a sync."""
        source = SyncSource(TableQuery.parsed(whole_table(TableName("bronze", "source")), "databricks", "the benchmark"))
        destination = TableName("bronze", f"by_{engine}")
        sync = SyncDeclaration("bench", source, destination, self.strategy, ("id",), engine=engine)
        pass_of(self.stack.spark, self.duckdb, sync).run()

    def by_statements(self) -> None:
        """By a MERGE, and for a mirror another one that deletes, in two commits."""
        self._run(
            "MERGE INTO bronze.by_statements AS t USING bronze.source AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        if self.strategy is SyncStrategy.MIRROR:
            # Delta has no DELETE with a subquery.
            self._run(
                "MERGE INTO bronze.by_statements AS t USING bronze.source AS s ON t.id = s.id "
                "WHEN NOT MATCHED BY SOURCE THEN DELETE"
            )

    def by_delta_rs(self) -> None:
        """By delta-rs, which reads the source's files and merges into a table by path."""
        merge = DeltaTable(str(self.folder)).merge(self._arrow("source"), "t.id = s.id", source_alias="s", target_alias="t")
        merged = merge.when_matched_update_all().when_not_matched_insert_all()
        if self.strategy is SyncStrategy.MIRROR:
            merged = merged.when_not_matched_by_source_delete()
        merged.execute()

    def by_dlt(self) -> None:
        """By dlt, which reads the source's files, and merges by delta-rs into a table by path with columns of its own."""
        self._load(self._arrow("source"))

    def _load(self, rows: Any) -> None:
        merge: Any = {"disposition": "merge", "strategy": "upsert"}
        resource = dlt.resource(rows, name="merged", primary_key="id", write_disposition=merge, table_format="delta")
        dlt.pipeline(
            "bench",
            pipelines_dir=str(self.folder.parent / "dlt"),
            destination=filesystem(bucket_url=self.folder.parent.as_uri()),
            dataset_name="by_dlt",
        ).run(resource)

    def check(self) -> None:
        """Compare the destinations."""
        counts = [self._count(f"bronze.{name}") for name in _DESTINATIONS]
        paths = [self.folder, *([self.folder.parent / "by_dlt" / "merged"] if self.strategy is SyncStrategy.MERGE else [])]
        counts += [DeltaTable(str(path)).to_pyarrow_dataset().count_rows() for path in paths]
        for name in _DESTINATIONS:
            differ = self._count(f"(TABLE bronze.{name} EXCEPT TABLE bronze.by_statements)")
            if differ or len(set(counts)) > 1:
                raise SystemExit(f"{name}: the destinations differ ({differ} rows; {counts}), so nothing is measured")

    def _count(self, rows: str) -> int:
        ((count,),) = (row.values() for row in self.stack.spark.rows(self.stack.spark.sql(f"SELECT count(*) FROM {rows}")))
        return int(count)

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
            console.print(f"{merges.strategy} of {size:,} rows, {name}: {seconds[name][-1]:.2f} s")
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
    # It would report its runs to dlthub.
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    ratios = list[tuple[str, float, float | None, bool]]()
    shown = Table("seconds", "sync by DuckDB", "sync by Spark", *WAYS[2:], "rows/s by DuckDB")
    with warm_stack() as stack:
        duckdb = DuckDB(catalog=stack.catalog)
        cases = [
            *((f"merge of {size:,} rows", SyncStrategy.MERGE, _merged(given.rows, size)) for size in SIZES),
            ("mirror with 1% deleted and 1% changed", SyncStrategy.MIRROR, _mirrored(given.rows)),
        ]
        for name, strategy, offers in cases:
            merges = Merges(stack, duckdb, stack.home / "by_delta_rs", strategy)
            found, size = measured(merges, given.rows, offers, given.rounds)
            shown.add_row(
                name, *(f"{found[way]:.2f}" if way in found else "" for way in WAYS), f"{size / found['DuckDB']:,.0f}"
            )
            best = min(seconds for way, seconds in found.items() if way not in ("DuckDB", "Spark"))
            aim = 1.0 if size >= 100_000 else None
            ratios.append((f"{name}: fastest other way against the sync by DuckDB", best / found["DuckDB"], aim, True))
            ratios.append((f"{name}: fastest other way against the sync by Spark", best / found["Spark"], None, True))
        duckdb.close()
    console.print(shown)
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
