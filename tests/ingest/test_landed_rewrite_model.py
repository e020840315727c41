"""Landed files that an erasure rewrites, the ledger and bronze, against a plain model: files land, are loaded, rewritten and
land again, and every step may be the last of its process."""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import duckdb
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.group_commit import Staged
from ratify_lakehouse.engines.duckdb.row_replacement import replace_rows
from ratify_lakehouse.ingest.file_source import LandedCopy, Rewrite
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger, copy_commits
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries, waiting
from ratify_lakehouse.ingest.load import landed_rewrite
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS, ErasureKey
from ratify_lakehouse.ingest.load.landed_rewrite import LandedRewrite
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.subject_match import Match
from tests.embedded.catalog.harness import CatalogProcess
from tests.engines.declared_tables import create_declared
from tests.ingest.load_seams import SEAMS, LoadKilled, dying_at
from tests.ingest.rewrite_model import SUBJECT, ModelRewrite, RewriteModel, others, parsed
from tests.ingest.test_batch_loading import new_source
from tests.ingest.test_ledger_model import live_files

pytestmark = pytest.mark.server

PATHS = ("a.csv", "b.csv", "c.csv")
# Several become the same bytes by a rewrite, one those of another that lands by itself, and one nothing.
CONTENTS = ("ann bob", "bob ann", "bob", "ann cid bob", "cid bob", "ann")
MATCHES = (Match("name"),)
HEADER, DIALECT = "code,name\n", ","


def text_of(content: str) -> str:
    return HEADER + "".join(f"x,{name}\n" for name in parsed(content))


def digest(content: str) -> str:
    return sha256(text_of(content).encode()).hexdigest()


RANK = {content: digest(content) for content in CONTENTS}


class RewriteDriver:
    """Does the same to a landing zone with its table, and to the model."""

    def __init__(self, server: CatalogProcess, home: Path, seed: int) -> None:
        self.server, self.home = server, home
        self.chance = random.Random(seed)  # noqa: S311
        self.root = Path(tempfile.mkdtemp(dir=home))
        self.zone = LandingZone(url=str(self.root))
        base = new_source("code", "name")
        columns = [replace(each, subject="person") if each.name == "name" else each for each in base.table.columns]
        policy = self.chance.choice([*Rewrite])
        table = replace(base.table, columns=tuple(columns))
        self.source = replace(base, table=table, on_rewrite=policy, landed=LandedCopy.REWRITE)
        self.folder = base.table.name
        (self.root / self.folder).mkdir()
        with server.client() as client:
            create_declared(client, table)
        self.model = RewriteModel.of(policy)
        self.erased, self.copied, self.stamps = False, True, 100
        self.done = Counter[str]()

    @contextmanager
    def engine(self) -> Generator[DuckDB]:
        """An engine of a process that has just started."""
        engine = DuckDB(catalog=UnityCatalog(host=self.server.url, token=self.server.token), threads=1)
        engine.__dict__["home"] = self.home / "machine"
        try:
            yield engine
        finally:
            engine.close()

    def step(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            "land": self.land,
            "tick": self.tick,
            "load": self.load_some,
            "die": self.die,
            "erase": lambda: self.erase("", 0, late=False),
            "die erasing": self.die_erasing,
            "lose": self.lose_a_file,
        }
        (what,) = self.chance.choices([*steps], (5, 2, 1, 2, 1, 3, 1))
        self.done[what] += 1
        with self.engine() as self.duckdb:
            steps[what]()
            self.compare()

    def land(self) -> None:
        """A file lands, or changes, or a copy of another as it is now."""
        path = f"{self.folder}/{self.chance.choice(PATHS)}"
        content = self.chance.choice([*CONTENTS, *(content for content, _ in self.model.files.values())])
        stamp = CONTENTS.index(content) if content in CONTENTS and self.chance.random() < 0.5 else self.next_stamp()
        (self.root / path).write_text(text_of(content))
        os.utime(self.root / path, (stamp * 1_000 + 1, stamp * 1_000 + 1))
        self.model.files[path] = content, stamp

    def next_stamp(self) -> int:
        self.stamps += 1
        return self.stamps

    def tick(self) -> None:
        self.load([file.path for file in waiting(self.duckdb, self.zone, self.source)])

    def load_some(self) -> None:
        self.load(self.chance.sample([*self.model.files], k=min(2, len(self.model.files))))

    def die(self) -> None:
        files = [*self.model.files]
        self.load(self.chance.sample(files, k=len(files)), self.chance.choice(SEAMS), self.chance.randint(1, 2))

    def load(self, paths: list[str], seam: str = "", number: int = 0) -> None:
        files = self.zone.look(paths)
        if not files:
            return
        steps = self.model.table.loading(
            [self.model.version(file.path, RANK) for file in files], dict.fromkeys(CONTENTS, True), DIALECT
        )
        with dying_at(seam, number, self.source.table.name, None) as passed:
            try:
                load_batch(self.duckdb, self.zone, self.source, files)
                self.copied = True
                list(steps)
            except LoadKilled:
                self.copied = False
                for _ in range(passed["commits"]):
                    next(steps)
                if passed["notes"]:
                    with suppress(StopIteration):
                        next(steps)
        self.model.loaded |= {*self.model.table.held}

    def die_erasing(self) -> None:
        self.erase(
            self.chance.choice(("_append", "overwrite", "delete")),
            self.chance.choice((1, 1, 1, 2, 3)),
            late=self.chance.random() < 0.5,
        )

    def erase(self, seam: str, number: int, *, late: bool) -> None:
        """What `ratify erase` does, up to the `number`th pass of a seam, or all of it."""
        self.remember()
        self.delete_rows()
        self.erased = True
        rewrite = LandedRewrite(self.duckdb, self.zone, [self.source])
        with self.dying(seam, number, late=late), suppress(LoadKilled):
            for file in self.zone.files(self.source.pattern):
                if SUBJECT in parsed(self.model.files[file.path][0]):
                    assert rewrite.rewrite(self.source, "", file.path, MATCHES, SUBJECT)
        if not seam:
            assert not any(SUBJECT in path.read_text() for path in self.root.rglob("*") if path.is_file())

    def remember(self) -> None:
        key = ErasureKey.stored(self.duckdb.home, create=True)
        if not self.erased:
            with self.duckdb.session() as session:
                digest = key.digest("person", SUBJECT)
                select = (
                    f"SELECT 'person' AS kind, {literal(digest)} AS digest, {literal(key.id)} AS key_id, '' AS erased_by, "
                )
                session.append(ERASED_SUBJECTS, f"{select} now() AS erased_at, '' AS reason", [uuid4().hex])

    def delete_rows(self) -> None:
        """As a MERGE of Spark does."""
        with self.duckdb.session() as session:
            types = {column.name: sql_type(column.type).spark for column in self.source.table.columns}
            nothing = Staged(self.root / "none.parquet", 0, 0, (), types, {})
            replace_rows(session.con, session.log(self.source.table), nothing, "name", SUBJECT)

    @contextmanager
    def dying(self, seam: str, number: int, *, late: bool) -> Generator[None]:
        """Note in the model what a rewrite does; at a pass of the seam, die before or after it."""
        passed = Counter[str]()
        append = FileLedger._append

        def reached(name: str, done: bool) -> None:
            passed[name] += not done
            if name == seam and passed[name] == number and late is done:
                self.done[f"died {'after' if late else 'before'} {name}"] += 1
                raise LoadKilled

        def appending(ledger: FileLedger, rows: Any, loads: Any) -> None:
            reached("_append", False)
            append(ledger, rows, loads)
            self.copied = True
            for row in rows:
                if row["status"] == Status.REWRITTEN.value:
                    names = {digest: content for content, digest in RANK.items()}
                    rewritten = ModelRewrite(row["path"], names[row["sha256"]], names[row["conflicts_with"]], row["version"])
                    self.model.rewrites.append(rewritten)
                elif row["status"] == Status.REPEATED.value:
                    self.model.table.note(self.model.version(row["path"], RANK), True, DIALECT)
            reached("_append", True)

        def moving(name: str, original: Any) -> Any:
            def move(zone: LandingZone, path: str, *more: Any) -> Any:
                reached(name, False)
                moved = original(zone, path, *more)
                content, _ = self.model.files.pop(path)
                if name == "overwrite":
                    self.model.files[path] = " ".join(others(parsed(content))), self.next_stamp()
                reached(name, True)
                return moved

            return mock.patch.object(landed_rewrite, name, move)

        with (
            mock.patch.object(FileLedger, "_append", appending),
            moving("overwrite", landed_rewrite.overwrite),
            moving("delete", landed_rewrite.delete),
        ):
            yield

    def lose_a_file(self) -> None:
        """The storage loses a data file whose loads can be withdrawn, and the table is repaired."""
        with self.duckdb.session() as session:
            log = session.log(self.source.table)
            snapshot = log.refresh()
            held = {digest(content): content for content in self.model.table.held}
            for file in log.files(snapshot):
                actions = log.actions(file.version or 0)
                txns = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
                brought = [load.removeprefix("content:") for load in txns if load.startswith("content:")]
                same = all(snapshot.txn_versions([load])[load] == version for load, version in txns.items())
                if brought and same and {*brought} <= {*held} and not any("remove" in action for action in actions):
                    log.storage.remove(file.path)
                    assert repair(log)
                    self.model.table.lose(held[sha256] for sha256 in brought)
                    copy_commits(self.duckdb, self.source.table.full_name("ratify"))
                    self.copied = True
                    self.done["lost"] += 1
                    return

    def compare(self) -> None:
        with self.duckdb.session() as session:
            names = live_files(session.log(self.source.table))
            rows = duckdb.execute("SELECT _source_file, name FROM read_parquet(?)", [names]).fetchall() if names else []
            assert Counter(row for row in rows if row[1] != SUBJECT) == self.model.rows()
            assert not self.erased or SUBJECT not in {name for _, name in rows}
            if not self.copied:
                return
            versions = [self.model.version(path, RANK) for path in self.model.files]
            found = {file.path for file in waiting(self.duckdb, self.zone, self.source)}
            assert found == {file.path for file in versions if self.model.table.waits(file, DIALECT)}
            held = {(entry.path, entry.sha256) for entry in table_entries(session, self.source).held}
            assert held == {(path, digest(content)) for content, path in self.model.table.held.items()}

    def finish(self) -> None:
        """Erase once more, and load what waits: nothing of the subject is left, and nothing waits."""
        with self.engine() as self.duckdb:
            self.erase("", 0, late=False)
            self.tick()
            self.compare()
            assert waiting(self.duckdb, self.zone, self.source) == []
        shutil.rmtree(self.root)


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[CatalogProcess, Path]]:
    home = tmp_path_factory.mktemp("rewrite-model")
    server = CatalogProcess.start(home / "catalog")
    with server.client() as client:
        create_declared(client, LANDED_FILES, ERASED_SUBJECTS)
    yield server, home
    server.stop()


def run(lakehouse: tuple[CatalogProcess, Path], monkeypatch: pytest.MonkeyPatch, seeds: range, steps: int) -> Counter[str]:
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "LANDING_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(lakehouse[1] / "ratify"))
    done = Counter[str]()
    for seed in seeds:
        driver = RewriteDriver(*lakehouse, seed)
        for number in range(steps):
            try:
                driver.step()
            except Exception as error:
                error.add_note(f"seed {seed}, step {number}, {driver.source.on_rewrite}: {driver.model}")
                raise
        driver.finish()
        done += driver.done
    return done


def test_rewritten_files_are_what_the_model_says(
    lakehouse: tuple[CatalogProcess, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lakehouse, monkeypatch, range(3), 8)


@pytest.mark.long
def test_rewritten_files_are_what_the_model_says_at_length(
    lakehouse: tuple[CatalogProcess, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(lakehouse, monkeypatch, range(100, 130), 16)
    died = {f"died {when} {name}" for when in ("before", "after") for name in ("_append", "overwrite")}
    assert died | {"died before delete", "lost"} <= {*done}
