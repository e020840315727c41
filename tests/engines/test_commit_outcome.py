"""Whatever the network does to the catalog's answers to a commit: nothing is lost, nothing doubled, all is readable."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from urllib.parse import unquote, urlsplit

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.row_replacement import replace_rows
from ratify_lakehouse.errors import (
    AlreadyLoaded,
    CatalogBusy,
    CatalogDenied,
    CommitConflict,
    CommitOutcomeUnknown,
    RatifyError,
    TableMissing,
)
from tests.embedded.catalog.harness import TableClient, client_of
from tests.engines.faulty_network import CUT, TIME_OUT, Answer, FaultyNetwork, Moment, faulty_network
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

ANSWERS: tuple[Answer, ...] = (200, 401, 403, 404, 409, 429, 500, 502, 503, CUT, TIME_OUT)
SENDS = ("first", "second", "all")
PATIENCE = (1, 120)
Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class FaultyOperation:
    """A commit to a table with the rows (1, a) and (2, b), which are in one file, and the rows that it has afterwards."""

    name: str
    commit: Callable[[DuckDB, TableDeclaration], object]
    rows: Rows
    columns: tuple[Column, ...] = ()


def append_c(duckdb: DuckDB, table: TableDeclaration) -> None:
    append(duckdb, table, "SELECT 3, 'c'", "c")


def replace_a(duckdb: DuckDB, table: TableDeclaration) -> None:
    with duckdb.session() as session, TemporaryDirectory() as folder:
        staged = session.stage(table, "SELECT 11, 'a'", ["new a"], Path(folder))
        replace_rows(session.con, session.log(table), staged, "v", "a", withdrawn=["both"])


def add_column(duckdb: DuckDB, table: TableDeclaration) -> None:
    with duckdb.session() as session:
        session.add_columns(table, [Column("w", "int")])


OPERATIONS = (
    FaultyOperation(
        "append", lambda duckdb, table: append(duckdb, table, "SELECT 3, 'c'", "c"), [(1, "a"), (2, "b"), (3, "c")]
    ),
    FaultyOperation("replace", replace_a, [(2, "b"), (11, "a")]),
    FaultyOperation("add columns", add_column, [(1, "a", None), (2, "b", None)], (Column("w", "int"),)),
)


@dataclass(frozen=True)
class FaultyCommit:
    """One fault in one commit."""

    answer: Answer
    moment: Moment
    sends: str
    operation: FaultyOperation

    def __str__(self) -> str:
        return f"{self.operation.name}: {self.answer} to the {self.sends}, the catalog has it {self.moment}"

    def spoil(self, network: FaultyNetwork) -> None:
        """The `second` is spoiled where the first was lost at the same moment."""
        answers = {"first": [self.answer], "second": [CUT, self.answer], "all": []}[self.sends]
        network.spoil(self.moment, *answers, then=self.answer if self.sends == "all" else None)

    @property
    def patience(self) -> int:
        """Seconds for which the writer sends again: as long as any machine needs, where it succeeds in the end."""
        return PATIENCE[self.sends != "all"]

    @property
    def error(self) -> type[RatifyError] | None:
        """What the writer must raise."""
        final = {401: CatalogDenied, 403: CatalogDenied, 404: TableMissing}.get(self.answer)  # type: ignore[call-overload]
        if self.moment is Moment.AFTER or (self.sends != "all" and not final):
            return None
        if self.moment is Moment.LATE or (self.sends == "second" and final):
            return CommitOutcomeUnknown
        # A writer that lost has asked the others to commit its rows.
        lost = CommitOutcomeUnknown if self.operation.name == "append" else CommitConflict
        return final or {409: lost, 429: CatalogBusy}.get(self.answer, CommitOutcomeUnknown)  # type: ignore[call-overload]


class FaultyWriter:
    """A writer behind a faulty network, and a reader beside it."""

    def __init__(self, lake: Lakehouse, reader: DuckDB, network: FaultyNetwork, timeout: float, patience: int) -> None:
        self._lake = lake
        self._reader = reader
        self._network = network
        token = lake.stack.catalog.token_file.read_text().strip()
        catalog = UnityCatalog(host=network.url, token=token, retry_seconds=60, timeout_seconds=timeout)
        self._duckdb = DuckDB(catalog=catalog, attempts=2, commit_patience=patience, threads=1)
        self._client = client_of(lake.stack.catalog.url, token)

    def close(self) -> None:
        self._duckdb.close()
        self._client.close()

    def check(self, case: FaultyCommit) -> TableDeclaration:
        """Commit under the fault, then repeat it as a caller would; return the table as it is declared in the end."""
        table = pairs()
        location = TableClient.create_readable(self._client, "bronze", table.name).location
        append(self._duckdb, table, "FROM (VALUES (1, 'a'), (2, 'b'))", "both")
        case.spoil(self._network)
        error = self._commit(case, table)
        self._network.spoil(Moment.BEFORE)
        self._network.deliver()
        assert type(error) is (case.error or type(None)), repr(error)

        self._check_files(location, tidy=not isinstance(error, CommitOutcomeUnknown))
        ratified = self._lake.version(table) == 2
        assert error is None or not ratified or isinstance(error, CommitOutcomeUnknown)
        again = self._commit(case, table)
        assert again is None or (ratified and type(again) is AlreadyLoaded), repr(again)
        assert self._lake.version(table) == 2 or case.operation.name == "append"
        self._check_files(location, tidy=False)
        with self._reader.session() as session:
            assert session.rows(f"SELECT * FROM uc.bronze.{table.name} ORDER BY id") == case.operation.rows
        return replace(table, columns=(*table.columns, *case.operation.columns))

    def _commit(self, case: FaultyCommit, table: TableDeclaration) -> RatifyError | None:
        try:
            case.operation.commit(self._duckdb, table)
        except RatifyError as error:
            return error
        return None

    def _check_files(self, location: str, *, tidy: bool) -> None:
        """Every file is there that a version names; where `tidy`, no other."""
        root = Path(unquote(urlsplit(location).path))
        staged = {path.read_text() for path in root.glob("_delta_log/_staged_commits/*")}
        log = {path.read_text() for path in root.glob("_delta_log/*.json")}
        named = {
            json.loads(line)["add"]["path"] for actions in log for line in actions.splitlines() if line.startswith('{"add"')
        }
        files = {path.name for path in root.glob("*.parquet")}
        assert named <= files
        if tidy:
            assert named == files
            assert staged <= log


@dataclass(frozen=True)
class FaultyWriters:
    """Writers, each for one thread at a time: each loads DuckDB's extensions, and so does its reader.

    Attributes:
        lake: The lakehouse.
        opened: What is closed in the end.
        idle: Writers that no thread has, by what they differ in.
    """

    lake: Lakehouse
    opened: ExitStack
    idle: defaultdict[tuple[float, int], list[FaultyWriter]] = field(
        default_factory=lambda: defaultdict[tuple[float, int], list[FaultyWriter]](list)
    )
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def one(self, answer: Answer, patience: int) -> Generator[FaultyWriter]:
        timeout = 1.5 if answer == TIME_OUT else 30
        with self._lock:
            of_kind = self.idle[timeout, patience]
            taken = of_kind.pop() if of_kind else self._opened(timeout, patience)
        yield taken
        with self._lock:
            of_kind.append(taken)

    def _opened(self, timeout: float, patience: int) -> FaultyWriter:
        network = self.opened.enter_context(faulty_network(self.lake.stack.catalog.url))
        reader = self.opened.enter_context(closing(self.lake.another_duckdb(threads=1)))
        return self.opened.enter_context(closing(FaultyWriter(self.lake, reader, network, timeout, patience)))


def check(lake: Lakehouse, cases: Sequence[FaultyCommit], read_by_spark: int, threads: int) -> None:
    """`threads`: each opens some writers, which takes as long as several cases."""
    lake.catalog.ensure_schemas(("bronze",))

    def group(answer: Answer, moment: Moment, patience: int) -> list[tuple[FaultyCommit, TableDeclaration | Exception]]:
        done = list[tuple[FaultyCommit, TableDeclaration | Exception]]()
        with writers.one(answer, patience) as one:
            for case in cases:
                if (case.answer, case.moment, case.patience) == (answer, moment, patience):
                    try:
                        done.append((case, one.check(case)))
                    except Exception as error:  # noqa: BLE001 all that fail are shown together
                        done.append((case, error))
        return done

    # Those that wait longest go first.
    groups = [*product(ANSWERS[::-1], Moment, PATIENCE)]
    with ExitStack() as opened, ThreadPoolExecutor(threads) as pool:
        writers = FaultyWriters(lake, opened)
        done = [pair for pairs_ in pool.map(lambda each: group(*each), groups) for pair in pairs_]
    assert len(done) == len(cases)
    failed = [f"{case}: {type(end).__name__}: {end}" for case, end in done if isinstance(end, Exception)]
    assert not failed, "\n".join([f"{len(failed)} of {len(cases)} fail", *failed])
    chosen = random.Random(0).sample(done, read_by_spark)  # noqa: S311 a choice of tables, no key
    for first in range(0, len(chosen), 30):
        some = chosen[first : first + 30]
        # All by one query, with their rows as JSON.
        each = (
            f"SELECT {number} AS number, to_json(struct(*), map('ignoreNullFields', 'false')) AS row FROM {lake.full(table)}"
            for number, (_, table) in enumerate(some)
            if isinstance(table, TableDeclaration)
        )
        found = lake.run(" UNION ALL ".join(each))
        for number, (case, _) in enumerate(some):
            rows = [tuple(json.loads(row["row"]).values()) for row in found if row["number"] == number]
            assert sorted(rows) == case.operation.rows, case


ALL = [FaultyCommit(*values) for values in product(ANSWERS, Moment, SENDS, OPERATIONS)]
# Every answer at every moment once; to three answers in a row, every request and every operation at every moment.
NINTH = [
    FaultyCommit(answer, moment, SENDS[(first + at) % 3], OPERATIONS[(first + first // 3 + 2 * at) % 3])
    for (first, answer), (at, moment) in product(enumerate(ANSWERS), enumerate(Moment))
]


def test_every_answer_at_every_moment(lake: Lakehouse) -> None:
    check(lake, NINTH, read_by_spark=4, threads=3)


@pytest.mark.long
def test_every_answer_at_every_moment_to_every_operation(lake: Lakehouse) -> None:
    check(lake, ALL, read_by_spark=len(ALL), threads=8)
