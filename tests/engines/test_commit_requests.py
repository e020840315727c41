"""Writers that meet only in the catalog, as on different machines: who has lost is taken along by the next."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_actions import Proposal
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.group_commit import Ratified
from ratify_lakehouse.errors import CommitOutcomeUnknown
from tests.engines.lakehouse import Lakehouse, pairs

pytestmark = pytest.mark.stack

REQUESTS = "_ratify/requests"


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs())


class Machine:
    """A writer with a folder of state, and so a queue, of its own. `followed`: the versions after which it did more."""

    def __init__(self, lake: Lakehouse, table: TableDeclaration, home: str, patch: pytest.MonkeyPatch) -> None:
        self._engine: DuckDB = lake.another_duckdb(attempts=3)
        self._table, self._home, self._patch = table, home, patch
        self.log = self._engine.log(lake.full(table))
        self.followed = list[int]()

    def append(self, number: int, *before: Callable[[], object]) -> Ratified:
        """Append a row; `before` its first, second, … proposal reaches the catalog something else happens."""
        with self._at_home(), self._interrupted(list(before)), self._engine.session() as session:
            staged = session.stage(self._table, f"SELECT {number}, 'r'", [f"load {number}"], Path(self._home))
            return session.commit_staged(self._table, staged, self.followed.append)

    @contextmanager
    def _at_home(self) -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RATIFY_HOME", self._home)
            yield

    @contextmanager
    def _interrupted(self, before: list[Callable[[], object]]) -> Generator[None]:
        commit = DeltaLog.commit

        def interrupted(log: DeltaLog, plan: Callable[[Snapshot], Proposal]) -> object:
            def planned(snapshot: Snapshot) -> Proposal:
                proposal = plan(snapshot)
                if before:
                    before.pop(0)()
                return proposal

            return commit(log, planned if log is self.log else plan)

        with self._patch.context() as patch:
            patch.setattr(DeltaLog, "commit", interrupted)
            yield


@pytest.fixture
def machines(
    lake: Lakehouse, table: TableDeclaration, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> list[Machine]:
    return [Machine(lake, table, str(tmp_path_factory.mktemp("home")), monkeypatch) for _ in range(3)]


def numbers(lake: Lakehouse, table: TableDeclaration) -> list[int]:
    return [row[0] for row in lake.stored(table)]


def test_who_lost_is_taken_along(lake: Lakehouse, table: TableDeclaration, machines: list[Machine]) -> None:
    slow, fast, other = machines
    # Once others were faster, a writer looks for requests.
    assert fast.append(1, lambda: other.append(2)).attempts == 2
    made = list[Ratified]()
    carried = slow.append(10, lambda: other.append(3), lambda: made.append(fast.append(4)))
    assert carried.version == made[0].version
    assert (carried.rows, made[0].rows) == (1, 1)
    assert numbers(lake, table) == [1, 2, 3, 4, 10]
    assert slow.log.storage.names(REQUESTS) == []
    (txns,) = [[a["txn"]["appId"] for a in lake.commit(table, carried.version) if "txn" in a]]
    assert sorted(txns) == ["load 10", "load 4"]
    # What follows a commit is done by who committed, for the others too.
    assert carried.completed
    assert slow.followed == []
    assert fast.followed == [2, made[0].version]


def test_who_gives_up_does_not_know_whether_it_is_committed(
    lake: Lakehouse, table: TableDeclaration, machines: list[Machine]
) -> None:
    slow, fast, other = machines
    with pytest.raises(CommitOutcomeUnknown, match="one may yet commit it"):
        slow.append(10, *(partial(other.append, number) for number in (1, 2, 3)))
    assert numbers(lake, table) == [1, 2, 3]
    assert len(slow.log.storage.names(REQUESTS)) == 1
    # It is committed later indeed, by a writer that found its request: so its file had to stay.
    fast.append(5, lambda: other.append(4))
    assert numbers(lake, table) == [1, 2, 3, 4, 5, 10]
    assert slow.log.storage.names(REQUESTS) == []


def test_a_request_that_is_over_is_taken_away(lake: Lakehouse, table: TableDeclaration, machines: list[Machine]) -> None:
    slow, fast, other = machines
    with pytest.raises(CommitOutcomeUnknown):
        slow.append(10, *(partial(other.append, number) for number in (1, 2, 3)))
    # Its load comes in another way; and what nobody has written is in the way of nobody.
    other.append(10)
    storage = slow.log.storage
    storage.write(f"{REQUESTS}/000000000000001-{'0' * 32}.json", b'{"loads": [], "files": [], "fields": []}')
    storage.write(f"{REQUESTS}/000000000000001-{'1' * 32}.json", b'{"loads": 7')
    storage.write(f"{REQUESTS}/notes.txt", b"")
    fast.append(5, lambda: other.append(4))
    assert numbers(lake, table) == [1, 2, 3, 4, 5, 10]
    assert storage.names(REQUESTS) == ["notes.txt"]


def test_a_request_for_other_columns_waits_for_its_writer(
    lake: Lakehouse, table: TableDeclaration, machines: list[Machine]
) -> None:
    slow, fast, other = machines
    with pytest.raises(CommitOutcomeUnknown):
        slow.append(10, *(partial(other.append, number) for number in (1, 2, 3)))
    lake.run(f"ALTER TABLE {lake.full(table)} ALTER COLUMN v COMMENT 'changed'")
    fast.append(5, lambda: other.append(4))
    assert numbers(lake, table) == [1, 2, 3, 4, 5]
    assert len(slow.log.storage.names(REQUESTS)) == 1
