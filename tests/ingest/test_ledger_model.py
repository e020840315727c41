"""The ledger and bronze against a plain model: files land, change and come back, writers race and die, clocks jump."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta import commit_actions, commit_requests
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.load_ids import loaded_ids
from ratify_lakehouse.delta.snapshot import SnapshotState
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.file_source import CsvDialect, Rewrite, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.ledger.file_load_ids import contents as contents_of
from ratify_lakehouse.ingest.ledger.ledger_access import copy_commits
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries, waiting
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.embedded.catalog.harness import CatalogProcess
from tests.engines.declared_tables import create_declared
from tests.ingest.landing_places import landing_order
from tests.ingest.ledger_model import LandedVersion, ModelTable
from tests.ingest.load_seams import SEAMS, LoadKilled, dying_at
from tests.ingest.model_contents import CONTENTS, PATHS, digest, text_of
from tests.ingest.test_batch_loading import new_source

pytestmark = pytest.mark.server

DAYS_31 = 31 * 86_400


class LedgerMachine(RuleBasedStateMachine):
    """Drives two bronze tables and their models alike."""

    server: CatalogProcess
    home: Path

    @initialize(policies=st.tuples(st.sampled_from(Rewrite), st.sampled_from(Rewrite)))
    def start(self, policies: tuple[Rewrite, Rewrite]) -> None:
        self.root = Path(tempfile.mkdtemp(dir=self.home))
        self.zone = LandingZone(url=str(self.root))
        self.dialect = ","
        self.shift, self.machine = 0, "machine"
        self.landed: dict[str, LandedVersion] = {}
        self.clean = [True, True]
        base = new_source("code", "name")
        (self.root / base.table.name).mkdir()
        self.folder = base.table.name
        self.sources: list[Source] = []
        self.models = [ModelTable(policy) for policy in policies]
        with self.server.client() as client:
            for policy in policies:
                table = replace(base.table, name=f"t_{uuid4().hex[:10]}")
                create_declared(client, table)
                self.sources.append(replace(base, table=table, on_rewrite=policy))

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for n in range(2):
                self.load(n, list(PATHS), None)
                with self.engine() as duckdb:
                    # Files whose rows a killed run took away may be gone, so that nothing is left to be loaded.
                    copy_commits(duckdb, self.source(n).table.full_name("ratify"))
                self.clean[n] = True
                self.compare(n)
            self.ledger_holds_each_once()
            shutil.rmtree(self.root)

    def source(self, n: int) -> Source:
        return replace(self.sources[n], csv=CsvDialect(delimiter=self.dialect))

    @contextmanager
    def engine(self) -> Iterator[DuckDB]:
        """An engine of a process that has just started, on a machine whose clock is wrong, and which forgets what it may."""
        clock = SimpleNamespace(time=lambda: time.time() + self.shift)
        duckdb = DuckDB(catalog=UnityCatalog(host=self.server.url, token=self.server.token), threads=1)
        duckdb.__dict__["home"] = self.home / self.machine
        forgetful = partialmethod(SnapshotState.__init__, forget_at=0)
        try:
            with (
                patch.object(commit_actions, "time", clock),
                patch.object(commit_requests, "time", clock),
                patch.object(SnapshotState, "__init__", forgetful),
            ):
                yield duckdb
        finally:
            duckdb.close()

    @property
    def readable(self) -> dict[str, bool]:
        return {content: delimiter == self.dialect for content, (delimiter, _) in CONTENTS.items()}

    @rule(
        landings=st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([*CONTENTS, ""]), st.booleans()), max_size=3),
        n=st.integers(0, 1),
        what=st.sampled_from(["waiting", "some", "later", "die", "race", "repair", "rewrite"]),
        paths=st.lists(st.sampled_from(PATHS), unique=True, min_size=1),
        others=st.lists(st.sampled_from(PATHS), unique=True, min_size=1),
        seam=st.sampled_from(SEAMS),
        number=st.integers(1, 3),
        days=st.sampled_from([-DAYS_31, 0, 0, DAYS_31]),
        dialect=st.sampled_from([",", ",", ";"]),
    )
    def step(  # noqa: PLR0917
        self,
        landings: list[tuple[str, str, bool]],
        n: int,
        what: str,
        paths: list[str],
        others: list[str],
        seam: str,
        number: int,
        days: int,
        dialect: str,
    ) -> None:
        """Files land, the clock jumps, both declarations are corrected; then a load, which may die or race, or a repair."""
        for landing in landings:
            self.land(*landing)
        self.shift, self.dialect = days, dialect
        match what:
            case "waiting":
                self.load(n, None, None)
            case "some":
                self.load(n, paths, None)
            case "later":
                self.load_one_by_one(n, paths, copies=number > 1)
            case "die":
                self.load(n, paths, (seam, number, None))
            case "race":
                # Another writer, whose clock may be another, loads files between a decision and its commit.
                self.load(n, paths, ("propose", number, (others, -days)))
            case "rewrite":
                self.rewrite(n, number)
            case _:
                self.lose_a_file(n, number, dies=seam == "record")

    def land(self, path: str, content: str, touched: bool) -> None:
        """The same content under a name mostly has the same stamp, as in a store with entity tags; without any, it goes."""
        file = self.root / self.folder / path
        if not content:
            self.landed.pop(path, None)
            file.unlink(missing_ok=True)
            return
        stamp = 2 * sorted(CONTENTS).index(content) + touched
        file.write_text(text_of(content))
        os.utime(file, (stamp * 1_000 + 1, stamp * 1_000 + 1))
        self.landed[path] = LandedVersion(f"{self.folder}/{path}", content, stamp)

    def load(
        self, n: int, paths: list[str] | None, disturbance: tuple[str, int, Any] | None, *, more_follow: bool = False
    ) -> None:
        source, model, readable = self.source(n), self.models[n], self.readable
        with self.engine() as duckdb:
            if paths is None:
                files = waiting(duckdb, self.zone, source)
            else:
                there = {f"{self.folder}/{path}" for path in paths if path in self.landed}
                files = [file for file in self.zone.files(source.pattern) if file.path in there]
            if not files:
                return
            versions = [self.landed[Path(file.path).name] for file in files]
            steps = model.loading(versions, readable, self.dialect)
            seam, number, race = disturbance or ("", 0, None)

            def meanwhile() -> None:
                for _ in range(passed["commits"]):
                    next(steps)
                others, ahead = cast("tuple[list[str], int]", race)
                self.shift, shift = ahead, self.shift
                # On another machine: here, the writer that holds the lock would commit for both.
                self.machine = "other machine"
                self.clean[n] = True
                self.load(n, others, None)
                self.shift, self.machine = shift, "machine"

            with dying_at(seam, number, source.table.name, meanwhile if race else None) as passed:
                try:
                    load_batch(duckdb, self.zone, source, files, more_follow=more_follow)
                except LoadKilled:
                    self.clean[n] = False
                    for _ in range(passed["commits"]):
                        next(steps)
                    if passed["notes"]:
                        with suppress(StopIteration):
                            next(steps)
                else:
                    self.clean[n] = not more_follow
                    list(steps)
        self.compare(n)

    def load_one_by_one(self, n: int, paths: list[str], *, copies: bool) -> None:
        """Batches of one file, beside writers on other machines; the entries are written after the last one, unless the run
        is killed before."""
        with patch.object(DeltaLog, "contended", new=True):
            for path in paths:
                self.load(n, [path], None, more_follow=True)
            if copies:
                with self.engine() as duckdb:
                    copy_commits(duckdb, self.source(n).table.full_name("ratify"))
                self.clean[n] = True
        self.compare(n)

    def rewrite(self, n: int, pick: int) -> None:
        """A name whose rows are in the table gets content that is not, and is loaded; then the rows are lost."""
        held = sorted(self.models[n].held.items())
        free = [content for content in CONTENTS if self.readable[content] and content not in self.models[n].held]
        if held and free:
            name = Path(held[pick % len(held)][1]).name
            self.land(name, free[pick % len(free)], False)
            self.load(n, [name], None)
            self.lose_a_file(n, pick, dies=False)

    def lose_a_file(self, n: int, pick: int, *, dies: bool) -> None:
        """The storage loses a file whose loads can be withdrawn, and the table is repaired."""
        source, model = self.source(n), self.models[n]
        with self.engine() as duckdb, duckdb.session() as session:
            log = session.log(source.table)
            snapshot = log.refresh()
            candidates = dict[int, tuple[str, list[str]]]()
            for file in log.files(snapshot):
                actions = log.actions(file.version or 0)
                txns = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
                brought = contents_of(loaded_ids(txns))
                unchanged = all(snapshot.txn_versions([load])[load] == version for load, version in txns.items())
                if brought and unchanged and not any("remove" in action for action in actions):
                    candidates[file.version or 0] = (file.path, brought)
            if not candidates:
                return
            by_sha = {digest(content): content for content in CONTENTS}
            paths = {digest(content): Path(path).name for content, path in model.held.items()}
            now = {path: digest(file.content) for path, file in self.landed.items()}
            # Rather rows of a name that has other content by now: what was refused for them may be loaded then.
            others = {sha256 for sha256, path in paths.items() if now.get(path, sha256) != sha256}
            rewritten = [version for version, (_, brought) in candidates.items() if others.intersection(brought)]
            path, brought = candidates[sorted(rewritten or candidates)[pick % len(rewritten or candidates)]]
            log.storage.remove(path)
            assert repair(log)
            model.lose(by_sha[sha256] for sha256 in brought)
            if not dies:
                copy_commits(duckdb, source.table.full_name("ratify"))
        self.compare(n)

    def compare(self, n: int) -> None:
        source, model = self.source(n), self.models[n]
        with self.engine() as duckdb:
            assert self.bronze(duckdb, source) == {
                f"{self.folder}/{Path(path).name}\n{content}": CONTENTS[content][1]
                for content, path in model.held.items()
                if CONTENTS[content][1]
            }
            if self.clean[n]:
                found = {Path(file.path).name for file in waiting(duckdb, self.zone, source)}
                assert found == {path for path, file in self.landed.items() if model.waits(file, self.dialect)}
                with duckdb.session() as session:
                    held = {(entry.path, entry.sha256) for entry in table_entries(session, source).held}
                    assert held == self.held(n)
                    assert landing_order(session, source.table_name, model.held) == model.in_order()

    def bronze(self, engine: DuckDB, source: Source) -> dict[str, int]:
        """Rows by path and content, as the files of the log's latest version have them."""
        with engine.session() as session:
            names = live_files(session.log(source.table))
        if not names:
            return {}
        query = "SELECT _source_file, code, count(*), count(DISTINCT name) FROM read_parquet(?) GROUP BY ALL"
        rows = duckdb.execute(query, [names]).fetchall()
        assert all(count == distinct for *_, count, distinct in rows), rows
        return {f"{path}\n{content}": count for path, content, count, _ in rows}

    def ledger_holds_each_once(self) -> None:
        """In the ledger's own rows, each content was loaded once more than withdrawn if it is held, or else as often."""
        self.shift = 0
        with self.engine() as engine, engine.session() as session:
            names = live_files(session.log(LANDED_FILES))
        for n, source in enumerate(self.sources):
            query = (
                "SELECT path, sha256, count_if(status = 'loaded') - count_if(status = 'withdrawn'), "
                "count(*) - count(DISTINCT version) FROM read_parquet(?) "
                "WHERE table_name = ? AND status IN ('loaded', 'withdrawn') GROUP BY ALL"
            )
            rows = duckdb.execute(query, [names, source.table_name]).fetchall() if names else []
            assert all(balance in (0, 1) and not doubled for *_, balance, doubled in rows), rows
            assert {(path, sha256) for path, sha256, balance, _ in rows if balance} == self.held(n)

    def held(self, n: int) -> set[tuple[str, str]]:
        return {(path, digest(content)) for content, path in self.models[n].held.items()}


def live_files(log: DeltaLog) -> list[str]:
    snapshot = log.refresh()
    return [str(log.storage.local) + "/" + file.path for file in log.files(snapshot)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[type[LedgerMachine]]:
    # Of each test: a sequence reads a ledger with the files of all before.
    (home := tmp_path / "ledger-model").mkdir()
    server = CatalogProcess.start(home / "catalog")
    with server.client() as client:
        create_declared(client, LANDED_FILES)
    yield type("Machine", (LedgerMachine,), {"server": server, "home": home})
    server.stop()


def run(machine: type[LedgerMachine], monkeypatch: pytest.MonkeyPatch, sequences: int, number: int = 0) -> None:
    """Run sequences, always the same ones for a number."""
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "LANDING_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(machine.home / "ratify"))
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=sequences,
            stateful_step_count=8,
            deadline=None,
            database=None,
            # A failing sequence is short enough to be read, and each costs a second.
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_files_end_as_the_model_says(machine: type[LedgerMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    run(machine, monkeypatch, 3)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 21))
def test_files_end_as_it_says_at_length(number: int, machine: type[LedgerMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    run(machine, monkeypatch, 100, number)
