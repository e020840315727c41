"""Syncs that die by kill -9 at any moment, and two of them that write to one table at once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.components.syncs.sync_engines import pass_of
from tests.components.killed_sync import sync_of
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


@dataclass(frozen=True)
class SharedTable:
    """A destination of several syncs, each with a source of its own.

    Attributes:
        lake: The lakehouse.
        home: The folder of its state.
        name: Of the destination, in bronze.
    """

    lake: Lakehouse
    home: Path
    name: str

    def source(self, number: int) -> str:
        return f"{self.name}_{number}"

    def fill(self, number: int, rows: str) -> None:
        """Give a source the rows of a query."""
        self.lake.quick(f"INSERT OVERWRITE ratify.bronze.{self.source(number)} {rows}")

    def start(self, number: int, strategy: str, engine: str = "spark", *, tracked: bool = False) -> "subprocess.Popen[str]":
        """Start a pass, and return when it begins."""
        arguments = self._arguments(number, strategy, engine, tracked=tracked)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.components.killed_sync", *arguments],
            env=os.environ | {"RATIFY_HOME": str(self.home)},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n", process.communicate()[1][-2000:]
        return process

    def run(self, number: int, strategy: str, engine: str) -> None:
        """Run a pass to its end."""
        pass_of(self.lake.spark, self.lake.duckdb, sync_of(*self._arguments(number, strategy, engine, tracked=False))).run()

    def _arguments(self, number: int, strategy: str, engine: str, *, tracked: bool) -> list[str]:
        return [self.name, self.source(number), strategy, "id", "tracked" if tracked else "", engine]

    def rows(self) -> list[tuple[int, str]]:
        found = self.lake.quick(f"SELECT id, v FROM ratify.bronze.{self.name}")
        return sorted((row["id"], row["v"]) for row in found)

    @property
    def version(self) -> int:
        return self.lake.catalog.version(f"ratify.bronze.{self.name}")


@pytest.fixture
def shared(lake: Lakehouse, home: Path) -> SharedTable:
    table = SharedTable(lake, home, f"shared_{uuid4().hex[:10]}")
    lake.catalog.ensure_schemas(("bronze", "ops"))
    for name in (table.name, table.source(0), table.source(1)):
        lake.quick(f"CREATE TABLE ratify.bronze.{name} (id BIGINT, v STRING) USING DELTA")
    return table


def ended(processes: Sequence["subprocess.Popen[str]"]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]


_SECONDS = {"spark": 4.0, "duckdb": 0.4}
"""About as long as a pass takes."""


def killed_sequence(shared: SharedTable, seed: int, kills: int, engine: str) -> None:
    chance, before = random.Random(seed), list[tuple[int, str]]()  # noqa: S311 moments, not keys
    for number in range(kills):
        first = chance.randint(0, 50)
        shared.fill(0, f"SELECT id, concat('{number}-', id % 3) AS v FROM range({first}, {first + chance.randint(1, 100)})")
        after = sorted((row["id"], row["v"]) for row in shared.lake.quick(f"SELECT * FROM ratify.bronze.{shared.source(0)}"))
        version, process = shared.version, shared.start(0, "mirror", engine)
        time.sleep(chance.uniform(0, _SECONDS[engine]))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # What it had sent to Spark may still be running there.
        settled, rows = -1, shared.rows()
        while engine == "spark" and settled != (settled := shared.version):
            time.sleep(1.5)
            rows = shared.rows()
        assert rows in (before, after), "neither before nor after"
        assert shared.version - version <= 1
        shared.run(0, "mirror", engine)
        assert shared.rows() == after
        assert shared.version - version == 1
        before = after


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.long)])
def test_a_killed_sync_is_completed_by_the_next(shared: SharedTable, engine: str) -> None:
    killed_sequence(shared, 1, 1, engine)


@pytest.mark.long
@pytest.mark.parametrize("engine", _SECONDS)
@pytest.mark.parametrize("seed", range(2, 7))
def test_a_sync_is_killed_at_any_moment(shared: SharedTable, seed: int, engine: str) -> None:
    killed_sequence(shared, seed, 6, engine)


@pytest.mark.long
def test_two_syncs_write_to_one_table_at_once(shared: SharedTable) -> None:
    """Each ends with its own rows, and deletes none of the other's."""
    for round_ in range(4):
        for number in (0, 1):
            # The two have no key in common, and lose some of theirs in each round.
            rows = f"SELECT 2 * id + {number} AS id, 'round {round_}' AS v FROM range({round_ * 5}, {20 + round_ * 5})"
            shared.fill(number, rows)
        ended([shared.start(number, "mirror", tracked=True) for number in (0, 1)])
        assert shared.rows() == [(id_, f"round {round_}") for id_ in range(round_ * 10, 40 + round_ * 10)]
