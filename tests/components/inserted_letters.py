"""A source that gets rows of which some do not fit, and its sync, whose passes and replays are killed and overtaken."""

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import dead_letter_replay, sync_pass
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_declaration import (
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_engines import replayed
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import RETENTION
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.duckdb_sql import literal
from tests.components.declared_syncs import dead_letters_of, declared, names, run, table
from tests.components.incremental_tables import KilledPass, killed, moved
from tests.engines.lakehouse import Lakehouse, append

_PASS_STEPS: tuple[tuple[Any, str], ...] = (
    (sync_pass, "store_dead_letters"),
    (sync_pass, "write_changes"),
    (sync_pass, "settle_dead_letters"),
)
_REPLAY_STEPS: tuple[tuple[Any, str], ...] = (
    (dead_letter_replay, "settle_dead_letters"),
    (dead_letter_replay, "_finish"),
    (dead_letter_replay, "write_changes"),
)
_ENGINE_STEPS: dict[SyncEngine, tuple[tuple[Any, str], ...]] = {
    SyncEngine.SPARK: ((Spark, "merge_following"),),
    SyncEngine.DUCKDB: ((DuckDBSession, "append"), (DeltaLog, "commit")),
}


def moment(number: int) -> str:
    """The time of a row, of which no millisecond is whole."""
    return f"2026-01-01T00:00:00.{number * 1001 + 1:06d}+00:00"


def clock(hours: int) -> Any:
    """The module `datetime` of a machine whose clock differs by hours."""

    class Differing(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> "Differing":
            return cls.fromtimestamp(dt.datetime.now(tz).timestamp() + hours * 3600, tz)

    return SimpleNamespace(datetime=Differing, UTC=dt.UTC)


@dataclass
class InsertedRows:
    """A source that gets rows, and its sync.

    Attributes:
        rows: How many; they are numbered.
    """

    lake: Lakehouse
    patch: pytest.MonkeyPatch
    seed: str
    engine: SyncEngine = SyncEngine.DUCKDB
    rows: int = 0
    done: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 changes, not keys
        self.source, self.destination = names()
        self.lake.catalog.ensure_schemas(("bronze", "ops"))
        feed = self.chance.choice(("true", "false"))
        properties = f"USING DELTA TBLPROPERTIES ('delta.enableChangeDataFeed' = '{feed}')"
        self.lake.quick(f"CREATE TABLE ratify.bronze.{self.source} (id INT, n DECIMAL(3,1), at TIMESTAMP) {properties}")
        forgets = self.chance.random() < 0.5
        expiry = f" TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')" if forgets else ""
        self.lake.quick(f"CREATE TABLE ratify.bronze.{self.destination} (id INT, n INT, at TIMESTAMP) USING DELTA{expiry}")
        if forgets:
            # As it is an hour later; a commit of now is refused by those of now.
            self.patch.setattr(TableLog, "txn_versions", lambda *_: {})
        given = {"row_errors": RowErrors.SKIP, "engine": self.engine}
        self.sync = declared(self.destination, SyncStrategy.APPEND, table(self.source), **given)
        self.corrected = replace(self.sync, columns=(MappedColumn("n", "n", cast="int"),))

    def add(self, *misfits: bool) -> None:
        """One commit with rows, of which some fit only after the correction."""
        listed = ", ".join(
            f"({number}, {1.5 if misfit else 1}, TIMESTAMP'{moment(number)}')"
            for number, misfit in enumerate(misfits, self.rows)
        )
        self.lake.quick(f"INSERT INTO ratify.bronze.{self.source} VALUES {listed}")
        self.rows += len(misfits)

    def wait(self, *numbers: str | None) -> None:
        """Rows that a pass has read and not inserted, among the dead letters as it leaves them: with these as `n`."""
        rows = list[str]()
        for n in numbers:
            at = moment(self.rows).replace("+00:00", "Z")
            rows.append(f'{{"id":{self.rows},"n":{n or "null"},"at":"{at}"}}')
            self.rows += 1
        self.wait_for({"id": "int", "n": "decimal(3,1)", "at": "timestamp"}, *rows)

    def wait_for(self, types: Mapping[str, str], *rows: str) -> None:
        """As `wait`, with the JSON of rows whose columns have these types."""
        self.lake.spark.ensure_table(replace(DEAD_LETTERS, writer=Engine.DUCKDB))
        given = literal(json.dumps(types))
        listed = (
            f"('{self.sync.name}', {literal(f'hash {row}')}, 'why', {literal(row)}, 1, '{{}}', NULL, NULL, {given}, NULL)"
            for row in rows
        )
        columns = ", ".join(DEAD_LETTERS.column_names)
        # Other processes write to this table, too.
        append(
            self.lake.duckdb,
            DEAD_LETTERS,
            f"FROM (VALUES {', '.join(listed)}) AS t({columns})",
            f"letters of {self.sync.name}",
        )

    def run(self, sync: SyncDeclaration) -> None:
        run(self.lake, sync)

    def replay(self, sync: SyncDeclaration) -> None:
        with self.patch.context() as within:
            within.setattr(dead_letter_replay, "dt", clock(self.chance.choice((0, 0, -24, 1))))
            replayed(self.lake.spark, self.lake.duckdb, sync)

    def step(self) -> None:
        """Rows come, and a pass or a replay runs: to its end, killed, or while another one runs."""
        if self.chance.random() < 0.7:
            self.add(*(self.chance.random() < 0.6 for _ in range(self.chance.randint(1, 3))))
        steps, act = self.chance.choice(((_PASS_STEPS, self.run), (_PASS_STEPS, self.run), (_REPLAY_STEPS, self.replay)))
        sync = self.chance.choice((self.sync, self.sync, self.corrected))
        owner, name = self.chance.choice((*steps, *_ENGINE_STEPS[self.engine]))
        match self.chance.randint(0, 3):
            # Whoever commits holds a lock, for which another pass in this thread would wait.
            case 0 if owner is not DeltaLog:
                self.done[f"{act.__name__} overtaken"] += 1
                with moved(self.patch, owner, name, self._another):
                    act(sync)
            case 1:
                act(sync)
                self.done[act.__name__] += 1
            case _:
                calls, after = self.chance.randint(1, 2), self.chance.random() < 0.5
                with killed(self.patch, owner, name, after=after, calls=calls) as made, suppress(KilledPass):
                    act(sync)
                self.done[f"{act.__name__} killed" if len(made) >= calls else act.__name__] += 1
        self.check_destination()

    def _another(self) -> None:
        if self.chance.random() < 0.5:
            self.add(True, False)
        self.run(self.chance.choice((self.sync, self.corrected)))

    def check_destination(self) -> None:
        found = self.lake.quick(f"SELECT id, count(*) AS n FROM ratify.bronze.{self.destination} GROUP BY id HAVING n > 1")
        assert not found, f"{self.seed}: rows are there twice: {found}"

    def check_all(self) -> None:
        """After a pass that ends, each row is in the destination or among the dead letters."""
        self.run(self.sync)
        of_letters = (
            "SELECT CAST(get_json_object(row, '$.id') AS INT) AS id, explode(sequence(1, CAST(rows AS INT))) "
            f"FROM ratify.{DEAD_LETTERS.table_name} WHERE sync = '{self.sync.name}'"
        )
        every = f"SELECT id FROM ratify.bronze.{self.destination} UNION ALL SELECT id FROM ({of_letters})"
        claimed = self.lake.quick(
            f"SELECT count(*) AS n FROM ratify.{DEAD_LETTERS.table_name} "
            f"WHERE sync = '{self.sync.name}' AND replayed_at IS NOT NULL"
        )[0]["n"]
        if not claimed:
            # Rows of a claim that was interrupted may be in both.
            assert Counter(row["id"] for row in self.lake.quick(every)) == Counter(range(self.rows)), self.seed

    def check_corrected(self) -> None:
        """In the end each row is in the destination, once."""
        self.run(self.corrected)
        self.replay(self.corrected)
        self.check_arrived()

    def check_arrived(self) -> None:
        found = self.lake.quick(f"SELECT id, n, at FROM ratify.bronze.{self.destination}")
        wanted = [(number, 1, dt.datetime.fromisoformat(moment(number))) for number in range(self.rows)]
        assert sorted((row["id"], row["n"], row["at"]) for row in found) == wanted, self.seed
        assert dead_letters_of(self.lake, self.sync) == 0, self.seed
