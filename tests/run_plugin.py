"""The suite's own part of pytest: which process runs which file next, what each test took, and how far the long tier is."""

import importlib
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.collected_tests import Collected
from tests.long_tier import LongTier, about_checkout, code_of_checkout, shard
from tests.run_record import MOST_SECONDS, Measured, too_slow
from tests.run_schedule import hold_locks, longest_first
from tests.testing_document import PAGE, page

__all__ = ["hold_locks"]

_SHARED = pytest.StashKey[float]()
_LONG_SHARD = "--long-shard"
_RECORDS = "--records"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ratify")
    group.addoption(_LONG_SHARD, metavar="I/N", help="run the long tests of this shard that have not passed on this code")
    group.addoption("--record", action="store_true", help="write measured.json: give it to a whole `make test`")
    group.addoption(_RECORDS, type=Path, default=Path(__file__).parent, help="where measured.json and long_tier.json are")


def pytest_configure(config: pytest.Config) -> None:
    """Add the plugin of the process that starts the others, or is the only one."""
    if not hasattr(config, "workerinput"):
        config.stash[_RUN] = run = RecordedRun(config)
        config.pluginmanager.register(run)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules, beginning with a share of this process: it finds the others' as they have compiled them.

    Where all begin with the same file, each rewrites the asserts of all files, which takes seconds of each process.
    """
    config = session.config
    given = getattr(config, "workerinput", None)
    if given is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    folders = [config.rootpath / each for each in config.getini("testpaths")]
    found = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    files = [file for file in found if not _is_ignored(file, config)]
    first = len(files) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for file in files[first:] + files[:first]:
        # Who collects the file says what is wrong with it.
        with suppress(Exception):
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def _is_ignored(file: Path, config: pytest.Config) -> bool:
    return bool(config.hook.pytest_ignore_collect(collection_path=file, config=config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of a shard; tell the scheduler, which collects nothing itself, what there is."""
    collected = Collected.of(items)
    given = getattr(config, "workerinput", None)
    if given is None:
        run = config.stash[_RUN]
        run.collected, passed = collected, run.passed
    else:
        collected.write(Path(given["collected"]), given["workerid"])
        passed = frozenset(given["passed"])
    if which := config.getoption(_LONG_SHARD):
        chosen = set(shard(collected.long, which)) - passed
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Take the time of fixtures of the whole run, such as the start of the stack: it is of no test."""
    began = monotonic()
    try:
        return (yield)
    finally:
        if fixturedef.scope == "session":
            request.config.stash[_SHARED] = request.config.stash.get(_SHARED, 0.0) + monotonic() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the report say how much of its time fixtures of the whole run took."""
    report = yield
    report.shared_seconds = item.config.stash.get(_SHARED, 0.0)
    item.config.stash[_SHARED] = 0.0
    return report


class RecordedRun:
    """One run, in the process that starts the others, or is the only one."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.collected = Collected()
        self.seconds = defaultdict[str, float](float)
        self.failed = set[str]()
        self.slow = dict[str, float]()
        self.records: Path = config.getoption(_RECORDS)
        self.measured, self.long_tier = Measured.read(self.records), LongTier.read(self.records)
        self.whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.option.markexpr == "not long"
        self.code, self.about = (code_of_checkout(), about_checkout()) if config.getoption(_LONG_SHARD) else ("", "")
        self.passed = frozenset(self.long_tier.passed) - frozenset(self.long_tier.left(self.long_tier.passed, self.code))

    @property
    def _place(self) -> Path:
        factory: pytest.TempPathFactory = self.config._tmp_path_factory  # pyright: ignore[reportAttributeAccessIssue]
        return factory.getbasetemp() / "collected.json"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput.update(collected=str(self._place), passed=sorted(self.passed))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        return longest_first(config, log, self._place, (self.long_tier if self.code else self.measured).estimate)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self.seconds[test] += report.duration - getattr(report, "shared_seconds", 0.0)
        if report.outcome != "passed":
            self.failed.add(test)
        if self.code and report.when == "teardown":
            if test in self.failed:
                self.long_tier.forget(test)
            else:
                self.long_tier.add(test, self.code, self.seconds[test], self.about)
            self._write(self.long_tier)

    def _write(self, record: Measured | LongTier) -> None:
        record.write(self.records)
        if self.records == PAGE.parents[1] / "tests":
            PAGE.write_text(page(self.measured, self.long_tier))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._place.exists():
            self.collected = Collected.read(self._place)
        before = self.measured.over
        if self.whole:
            self.slow = too_slow(self.seconds, self.measured)
            if self.config.getoption("--record") and exitstatus == pytest.ExitCode.OK:
                self.measured = Measured.of(self.seconds, self.collected.tiers)
                self._write(self.measured)
        if self.slow and not before and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.code and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, seconds in self.slow.items():
            terminalreporter.write_line(
                f"TOO SLOW {test}: {seconds:.0f} s. A test may take {MOST_SECONDS} s: make it shorter, or mark it long.",
                red=True,
            )
        if self.code and self.collected.long:
            left = self.long_tier.left(self.collected.long, self.code)
            total = len(self.collected.long)
            terminalreporter.write_line(f"Of {total} long tests, {total - len(left)} have passed on this code.")


_RUN = pytest.StashKey[RecordedRun]()
