"""Dead letters of syncs of the strategy append: each row of the source is in the destination or among them, once.

Passes and replays are killed at every step, and overtake each other. The model: what is read is a row; it fits as it is, or
only after the declaration is corrected. The destination may forget Delta's `txn`, and clocks of machines differ.
"""

import datetime as dt
import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import dead_letter_replay, letter_variants, sync_pass
from ratify_lakehouse.components.syncs.dead_letter_replay import replay_dead_letters
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_declaration import (
    ChangeEvents,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_pass import SyncPass
from ratify_lakehouse.delta.snapshot import RETENTION, Snapshot
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import RowsNotConverted
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.components.declared_syncs import dead_letters_of, declared, names, stored, table
from tests.components.incremental_tables import KilledPass, killed, moved
from tests.engines.lakehouse import Lakehouse, append

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]

_PASS_STEPS: tuple[tuple[Any, str], ...] = (
    (sync_pass, "store_dead_letters"),
    (sync_pass, "write_changes"),
    (sync_pass, "settle_dead_letters"),
    (Spark, "merge_following"),
)
_REPLAY_STEPS: tuple[tuple[Any, str], ...] = (
    (dead_letter_replay, "settle_dead_letters"),
    (dead_letter_replay, "_finish"),
    (dead_letter_replay, "write_changes"),
    (Spark, "commit"),
)


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
            # As it is an hour later.
            self.patch.setattr(Snapshot, "txn_versions", lambda *_: {})
        self.sync = declared(self.destination, SyncStrategy.APPEND, table(self.source), row_errors=RowErrors.SKIP)
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
        self.lake.spark.ensure_table(DEAD_LETTERS)
        types = json.dumps({"id": "int", "n": "decimal(3,1)", "at": "timestamp"})
        listed = list[str]()
        for n in numbers:
            row = f'{{"id":{self.rows},"n":{n or "null"},"at":"{moment(self.rows).replace("+00:00", "Z")}"}}'
            listed.append(
                f"('{self.sync.name}', 'hash {self.rows}', 'why', '{row}', 1, '{{}}', NULL, NULL, '{types}', NULL)"
            )
            self.rows += 1
        columns = ", ".join(DEAD_LETTERS.column_names)
        # Other processes write to this table, too.
        append(
            self.lake.duckdb,
            DEAD_LETTERS,
            f"FROM (VALUES {', '.join(listed)}) AS t({columns})",
            f"letters of {self.sync.name}",
        )

    def run(self, sync: SyncDeclaration) -> None:
        SyncPass(self.lake.spark, self.lake.duckdb, sync).run()

    def replay(self, sync: SyncDeclaration) -> None:
        with self.patch.context() as within:
            within.setattr(dead_letter_replay, "dt", clock(self.chance.choice((0, 0, -24, 1))))
            replay_dead_letters(self.lake.spark, self.lake.duckdb, sync)

    def step(self) -> None:
        """Rows come, and a pass or a replay runs: to its end, killed, or while another one runs."""
        if self.chance.random() < 0.7:
            self.add(*(self.chance.random() < 0.6 for _ in range(self.chance.randint(1, 3))))
        steps, act = self.chance.choice(((_PASS_STEPS, self.run), (_PASS_STEPS, self.run), (_REPLAY_STEPS, self.replay)))
        sync = self.chance.choice((self.sync, self.sync, self.corrected))
        owner, name = self.chance.choice(steps)
        match self.chance.randint(0, 3):
            case 0:
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


def sequence(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: str, steps: int, *, check_all: bool = True) -> None:
    rows = InsertedRows(lake, patch, seed)
    rows.add(True, False)
    rows.run(rows.sync)
    for _ in range(steps):
        rows.step()
    if check_all:
        rows.check_all()
    rows.check_corrected()
    print(f"{seed}: {rows.rows} rows, {dict(rows.done)}")


def test_each_row_is_inserted_once(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is killed before its commit, and one that ends; the other tests have the rest."""
    sequence(lake, monkeypatch, "short 24", 1, check_all=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_inserted_once_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(lake, monkeypatch, str(seed), 12)


@pytest.mark.parametrize("of", [pytest.param("table", marks=pytest.mark.long), "query"])
def test_a_pass_of_which_no_row_fits_moves_on(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """After the correction its rows are those of a replay, and no pass reads them again."""
    rows = InsertedRows(lake, monkeypatch, "none fits")
    rows.add(True, True)
    if of == "query":
        query = TableQuery.parsed(f"SELECT id, n, at FROM bronze.{rows.source} WHERE id >= 0", "databricks", "the test")
        rows.sync, rows.corrected = (replace(each, source=SyncSource(query)) for each in (rows.sync, rows.corrected))
    rows.run(rows.sync)
    rows.run(rows.sync)
    assert dead_letters_of(lake, rows.sync) == 2
    rows.check_corrected()


def test_letters_of_a_pass_that_was_killed_are_those_of_the_next(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = InsertedRows(lake, monkeypatch, "killed")
    rows.add(True, False)
    with killed(monkeypatch, sync_pass, "store_dead_letters", after=True, calls=1), pytest.raises(KilledPass):
        rows.run(rows.sync)
    # It is not known that the pass has ended: its rows wait until the next one has committed, which inserts them.
    rows.replay(rows.corrected)
    assert dead_letters_of(lake, rows.sync) == 1
    rows.add(True)
    rows.run(rows.corrected)
    rows.check_arrived()


def test_a_claim_is_finished_as_it_was_begun(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what fits is different when it is finished."""
    rows = InsertedRows(lake, monkeypatch, "claim")
    rows.wait("1.5", "1.5")
    with killed(monkeypatch, dead_letter_replay, "write_changes", after=True, calls=1), pytest.raises(KilledPass):
        rows.replay(rows.corrected)
    rows.replay(rows.sync)
    rows.check_arrived()


def test_letters_that_do_not_fit_yet_stay(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = InsertedRows(lake, monkeypatch, "some fit")
    rows.wait("1.5", None)
    lake.quick(f"CREATE TABLE ratify.bronze.{rows.destination}_2 (id INT, n INT NOT NULL, at TIMESTAMP) USING DELTA")
    destination = TableName("bronze", f"{rows.destination}_2")
    rows.sync, rows.corrected = (replace(each, destination=destination) for each in (rows.sync, rows.corrected))
    for replayed in (1, 0):
        found = replay_dead_letters(lake.spark, lake.duckdb, rows.corrected)
        assert (found.replayed, found.waiting) == (replayed, 1)
    assert stored(lake, destination.table) == [(0, 1, dt.datetime.fromisoformat(moment(0)))]


def test_a_letter_has_the_types_and_the_values_that_its_row_had(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the source has others by now, or is not there any more; a text that is no UTF-8, and a VARIANT, too."""
    # Spark takes its time for each level.
    monkeypatch.setattr(letter_variants, "LEVELS", 2)
    rows = InsertedRows(lake, monkeypatch, "types")
    rows.add(True)
    lake.quick(f"CREATE TABLE ratify.bronze.{rows.destination}_2 (n INT, t BINARY, day DATE, at TIMESTAMP) USING DELTA")
    values = "CAST(X'C328' AS STRING) AS t, CAST(DATE'2026-01-02' AS VARIANT) AS v"

    def of(values: str) -> SyncDeclaration:
        query = TableQuery.parsed(f"SELECT n, at, {values} FROM bronze.{rows.source}", "databricks", "x.sql")
        columns = (MappedColumn("t", "t"), MappedColumn("day", "v", cast="date"), MappedColumn("n", "n"))
        more = {"columns": columns, "destination": TableName("bronze", f"{rows.destination}_2")}
        return replace(rows.sync, source=SyncSource(query), **more)

    with pytest.raises(RowsNotConverted, match=rf"1 rows .* the sync {rows.sync.name} .* VARIANT \(v\): .* to_json"):
        rows.run(of(values.replace("CAST(DATE'2026-01-02' AS VARIANT)", "parse_json('[[[1]]]')")))
    sync = of(values)
    rows.run(sync)
    assert dead_letters_of(lake, sync) == 1
    lake.quick(f"DROP TABLE ratify.bronze.{rows.source}")
    lake.quick(f"CREATE TABLE ratify.bronze.{rows.source} (id BOOLEAN, n INT, other INT) USING DELTA")
    rows.replay(replace(sync, columns=(*sync.columns[:2], MappedColumn("n", "n", cast="int"))))
    at = dt.datetime.fromisoformat(moment(0))
    found = (stored(lake, f"{rows.destination}_2"), dead_letters_of(lake, sync))
    assert found == ([(1, b"\xc3(", dt.date(2026, 1, 2), at)], 0)


@pytest.mark.long
def test_an_earlier_clock_loses_no_claim(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = InsertedRows(lake, monkeypatch, "clocks")
    for hours in (0, -1):
        rows.add(True)
        rows.run(rows.sync)
        with monkeypatch.context() as within:
            within.setattr(dead_letter_replay, "dt", clock(hours))
            assert replay_dead_letters(lake.spark, lake.duckdb, rows.corrected).replayed == 1
    assert stored(lake, rows.destination, "id, n") == [(0, 1), (1, 1)]


def test_the_sequence_of_an_event_stays_what_it_is(lake: Lakehouse) -> None:
    """An event that is a microsecond younger than the row is applied, not taken for an older one and forgotten."""
    source, destination = names()
    lake.catalog.ensure_schemas(("bronze", "ops"))
    lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq TIMESTAMP, n DECIMAL(3,1)) USING DELTA")
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (k STRING, seq TIMESTAMP, n INT) USING DELTA")
    lake.quick(
        f"INSERT INTO ratify.bronze.{source} VALUES ('u', 'a', TIMESTAMP'{moment(0)}', 1), "
        f"('u', 'a', TIMESTAMP'{moment(1)}', 1.5)"
    )
    events = ChangeEvents("op", "seq")
    sync = declared(destination, SyncStrategy.CDC, table(source), "k", events=events, row_errors=RowErrors.SKIP)
    SyncPass(lake.spark, lake.duckdb, sync).run()
    assert stored(lake, destination) == [("a", dt.datetime.fromisoformat(moment(0)), 1)]
    lake.quick(f"DROP TABLE ratify.bronze.{source}")
    corrected = replace(sync, columns=(MappedColumn("n", "n", cast="int"),))
    found = replay_dead_letters(lake.spark, lake.duckdb, corrected)
    assert (found.replayed, found.waiting) == (1, 0)
    assert stored(lake, destination) == [("a", dt.datetime.fromisoformat(moment(1)), 1)]


def test_a_line_that_was_none_is_none_later(lake: Lakehouse, tmp_path: Path) -> None:
    _, destination = names()
    lake.catalog.ensure_schemas(("bronze", "ops"))
    (tmp_path / "a.csv").write_text("id,n\n1,1\n4,4,4\n5,x\n")
    source = SyncSource(files=str(tmp_path / "a.csv"), format="csv")
    sync = declared(destination, SyncStrategy.APPEND, source, row_errors=RowErrors.SKIP)
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT) USING DELTA")
    lake.quick(f"CREATE TABLE ratify.bronze.{destination}_2 (id INT, n STRING) USING DELTA")
    SyncPass(lake.spark, lake.duckdb, sync).run()
    assert (stored(lake, destination), dead_letters_of(lake, sync)) == ([(1, 1)], 2)
    # Nor are the files needed.
    (tmp_path / "a.csv").unlink()
    found = replay_dead_letters(lake.spark, lake.duckdb, replace(sync, destination=TableName("bronze", f"{destination}_2")))
    assert (found.replayed, found.waiting, stored(lake, f"{destination}_2")) == (1, 1, [(5, "x")])
