"""The ledger's index: what it answers, and that it answers without reading all entries."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from ratify_lakehouse.ingest.ledger import ledger_index
from ratify_lakehouse.ingest.ledger.ledger_index import LedgerIndex

SCHEMA = Path(ledger_index.__file__).with_suffix(".sql").read_text()


@pytest.fixture
def connection() -> sqlite3.Connection:
    con = sqlite3.connect(":memory:", isolation_level=None)
    con.executescript(SCHEMA)
    statuses = ["repeated", "refused", "loaded", "loaded", "loaded"]
    rows = ((f"t{n % 2}", f"p{n}", f"f{n}", f"s{n}", 1, statuses[n % 5], 1, "", n) for n in range(1000))
    con.executemany(f"INSERT INTO entries VALUES (NULL, {', '.join('?' * 9)}, 'b', '', '')", rows)
    con.execute("INSERT INTO held SELECT table_id, sha256, path, seq FROM entries WHERE status = 'loaded'")
    # As after many loads, SQLite knows how the values are distributed.
    con.execute("ANALYZE")
    return con


QUESTIONS: dict[str, tuple[Callable[[LedgerIndex], object], object]] = {
    "held": (lambda index: len(index.held("t1", ["p1", "p3", "p7"], ["s3", "s9"])), 3),
    "entries": (lambda index: [entry.path for entry in index.entries("t1", ["p1", "p2"])], ["p1"]),
    "entries_of_contents": (lambda index: [entry.path for entry in index.entries_of_contents("t0", ["s4"])], ["p4"]),
    "refused_paths": (lambda index: len(index.refused_paths("t1")), 100),
    "repeats": (lambda index: index.repeats("t1"), 100),
    "latest_entries": (lambda index: [entry.path for entry in index.latest_entries("t1", 2)], ["p999", "p997"]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_reads_all_entries(connection: sqlite3.Connection, question: str) -> None:
    ask, answer = QUESTIONS[question]
    asked = list[str]()
    connection.set_trace_callback(asked.append)
    assert ask(LedgerIndex(connection)) == answer
    connection.set_trace_callback(None)
    steps = [step for text in asked for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert any("entries" in step for step in steps)
    # Neither the whole of a table, nor all entries of a bronze table to sort or to filter them.
    assert not [step for step in steps if step.startswith("SCAN entries") or "TEMP B-TREE FOR ORDER BY" in step], steps
    everything = "INDEX entries_once (table_id=?)", "INDEX entries_by_content (table_id=?)"
    assert not [step for step in steps if step.endswith(everything)], steps


def test_an_index_of_another_layout_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE entries (something_else)")
        old.execute("PRAGMA user_version = 1")
    fresh = ledger_index._connected(path)
    assert fresh.execute("SELECT count(*) FROM entries").fetchone() == (0,)
    assert fresh.execute("SELECT version FROM indexed").fetchone() == (-1,)
    fresh.close()


def test_several_open_a_new_index_at_once(tmp_path: Path) -> None:
    def use(path: Path, together: Barrier) -> None:
        together.wait()
        with closing(ledger_index._connected(path)) as index:
            index.execute("UPDATE indexed SET version = version + 1")

    with ThreadPoolExecutor(6) as pool:
        for n in range(100):
            path, together = tmp_path / f"{n}.sqlite", Barrier(6)
            list(pool.map(lambda _, path=path, together=together: use(path, together), range(6)))
            with closing(sqlite3.connect(path)) as index:
                assert index.execute("SELECT version FROM indexed").fetchone() == (5,)
