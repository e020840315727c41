"""Full lists that land as files, the table of their history, and the model of it in plain Python, under random landings."""

import datetime as dt
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.ingest.ledger.file_ledger import Status
from ratify_lakehouse.ingest.ledger.ledger_queries import waiting
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome, load_batch
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.components.declared_pairs import declared
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse
from tests.sql.list_model import Key, ListedRow, some_list, versions

_FAILING = 9
_COLUMNS = [{"name": "k", "type": "int"}, {"name": "value", "type": "int"}, {"name": "note", "type": "int"}]


class ListedFiles:
    """The files in a folder of the landing zone, and two tables: `bronze.<name>`, and `silver.<name>` of the history.

    Attributes:
        lists: Those that are to count, by their dates.
    """

    def __init__(self, lake: Sparkless | Lakehouse, root: Path, name: str, engine: str = "duckdb", **files: Any) -> None:
        self.lake, self.name, self.engine = lake, name, engine
        self.zone, self.folder = LandingZone(url=str(root / "landing")), root / "landing" / name
        self.folder.mkdir(parents=True)
        given = {"pattern": f"{name}/*.csv", "contents": "snapshot", "columns": _COLUMNS, **files}
        self.source = declared(LandedFiles, root / "bronze" / name, given).source
        rule = {"name": "passes", "expect": f"value IS NULL OR value <> {_FAILING}", "action": "drop"}
        history = {"from_snapshots": f"bronze.{name}", "ignore": ["note"]}
        attributes = {"keys": ["k"], "strategy": "scd2", "history": history, "expectations": [rule], "engine": engine}
        sql = f"SELECT k, value, note, _source_file, _list_date FROM bronze.{name}"
        self.table = declared(SqlTable, root / "silver" / name, attributes, sql)
        self.lists = dict[dt.date, Mapping[Key, ListedRow]]()
        self._landed = 1_700_000_000

    def land(self, file: str, text: str, header: str = "k,value,note\n", at: dt.datetime | None = None) -> None:
        """Write a file, by default a minute after the one before."""
        self._landed = int(at.timestamp()) if at else self._landed + 60
        (self.folder / file).write_text(header + text)
        os.utime(self.folder / file, (self._landed, self._landed))

    def land_list(self, date: dt.date, rows: Mapping[Key, ListedRow], version: str = "") -> None:
        """Land the list of a date, which counts from now on unless it is empty."""
        values = ([key, _FAILING if row.fails else row.value, row.note] for key, row in rows.items())
        text = "".join(",".join("" if each is None else str(each) for each in row) + "\n" for row in values)
        self.land(f"list_{date}{version}.csv", text)
        if rows:
            self.lists[date] = rows

    def load(self) -> BatchOutcome | None:
        """Load the files that are waiting."""
        found = waiting(self.lake.duckdb, self.zone, self.source)
        ensure_landed_table(self.lake.spark, self.lake.duckdb, self.zone, self.source, found)
        return load_batch(self.lake.duckdb, self.zone, self.source, found) if found else None

    def run(self) -> None:
        """A pass over the table of history."""
        list(self.table.results(self.lake.spark, self.lake.duckdb))

    def history(self) -> list[tuple[Any, ...]]:
        """The versions that the table has."""
        rows = self.lake.quick(f"SELECT * FROM ratify.silver.{self.name}")
        assert all(row["current"] == (row["valid_to"] is None) and row["_list_date"] == row["valid_from"] for row in rows)
        names = ("k", "value", "note", "valid_from", "valid_to")
        return sorted((tuple(row[name] for name in names) for row in rows), key=str)

    def check(self) -> None:
        """Load, compute, and compare; nothing is left to do then."""
        self.load()
        self.run()
        assert self.history() == versions(self.lists)
        assert waiting(self.lake.duckdb, self.zone, self.source) == []


def land_something(files: ListedFiles, chance: random.Random, number: int) -> None:
    """Land a list: of a new day, late, corrected, equal to another, empty, or once more."""
    dates, first = sorted(files.lists), dt.date(2024, 1, 1)
    what = chance.choice(("new", "new", "late", "corrected", "renamed", "equal", "empty", "again")) if dates else "new"
    date = dates[-1] + dt.timedelta(chance.randint(1, 2)) if dates else first + dt.timedelta(9)
    of = chance.choice(dates) if dates else date
    if what == "late":
        date = dates[0] - dt.timedelta(1) if chance.random() < 0.5 else of + dt.timedelta(1)
    if what in ("new", "late"):
        files.land_list(date, some_list(chance) or {1: ListedRow(1, 1)}, f"_{number}" if date in files.lists else "")
    elif what in ("corrected", "renamed"):
        files.land_list(of, some_list(chance) or {2: ListedRow(1, 1)}, f"_{number}" if what == "renamed" else "")
    elif what == "equal":
        files.land_list(date, files.lists[of])
    elif what == "empty":
        files.land_list(date, {}, "_empty")
    else:
        file = chance.choice(sorted(files.folder.iterdir()))
        os.utime(file, ns=(file.stat().st_mtime_ns, file.stat().st_mtime_ns))


def refusals(outcome: BatchOutcome | None) -> dict[str, str]:
    """Why files of a batch were refused, by their names."""
    files = outcome.files if outcome else ()
    return {Path(file.path).name: file.reason for file in files if file.status is Status.REFUSED}
