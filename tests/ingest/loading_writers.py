"""Writers in processes of their own, which are given files and load them, and may be killed."""

import json
import os
import random
import sys
from pathlib import Path

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.ingest.file_source import APPEND, LOAD_COLUMNS, Source
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.killable import Killable

HEADER = ("id", "amount")


def source_of(name: str, header: tuple[str, ...] = HEADER) -> Source:
    """The files in a folder of the landing zone, for the bronze table of the same name."""
    columns = (*(Column(column, "string") for column in header), *LOAD_COLUMNS)
    table = TableDeclaration("bronze", name, columns, "of a test", Engine.DUCKDB, APPEND)
    return Source(f"{name}/*.csv", header, table)


class Writer(Killable):
    """A process that loads the files of its notifications, one after the other, and goes on where it was killed."""

    def __init__(self, folder: Path, home: Path, landing: Path, table: str, notifications: list[str], seed: int) -> None:
        self.total = len(notifications)
        self._done = folder / f"writer-{seed}.done"
        self._done.touch()
        task_file = folder / f"writer-{seed}.json"
        task = {
            "landing": str(landing),
            "table": table,
            "notifications": notifications,
            "done": str(self._done),
            "seed": seed,
        }
        task_file.write_text(json.dumps(task))
        command = [sys.executable, "-m", "tests.ingest.loading_writers", str(task_file)]
        super().__init__(command, {**os.environ, "RATIFY_HOME": str(home)}, folder / f"writer-{seed}.log")

    @property
    def done(self) -> int:
        """How many notifications it has worked off."""
        return len(self._done.read_text().splitlines())


def main(task_file: str) -> None:
    """Work off the notifications, in batches of one to four, whatever becomes of the catalog meanwhile."""
    task = json.loads(Path(task_file).read_text())
    done, chance = Path(task["done"]), random.Random(task["seed"])  # noqa: S311 sizes of batches, not keys
    landing, source = LandingZone(url=task["landing"]), source_of(task["table"])
    listed = {file.path: file for file in landing.files(source.pattern)}
    engine = DuckDB(catalog=UnityCatalog(), threads=1)
    left = task["notifications"][len(done.read_text().splitlines()) :]
    while left:
        names, left = left[: (size := chance.randint(1, 4))], left[size:]
        while True:
            try:
                load_batch(engine, landing, source, [listed[name] for name in dict.fromkeys(names)])
                break
            except RatifyError as error:
                print(type(error).__name__, error, flush=True)
        with done.open("a") as file:
            file.write("".join(f"{name}\n" for name in names))
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
