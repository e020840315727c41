"""The order of a run, what it records, and how the long tier goes on: in small runs of pytest with files of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collected_tests import Collected
from tests.long_tier import LongTier, code_of_checkout, shard
from tests.run_record import Measured, too_slow
from tests.run_schedule import next_unit

ROOT = Path(__file__).parents[1]
SECONDS = {"a": 10.0, "b": 9.0, "c": 8.0, "d": 1.0}


@pytest.mark.parametrize(
    ("running", "locks", "expected"),
    [
        ((), {}, "a"),
        (("x",), {"a": ["broker"], "x": ["broker"]}, "b"),
        (("x", "y"), {"a": ["broker"], "b": ["ledger", "proof"], "x": ["broker"], "y": ["ledger"]}, "c"),
        # All wait for somebody: the longest is given, and waits by its lock file.
        (("x",), {name: ["broker"] for name in (*SECONDS, "x")}, "a"),
    ],
)
def test_the_longest_file_that_shares_no_lock_is_next(
    running: tuple[str, ...], locks: dict[str, list[str]], expected: str
) -> None:
    waiting = {name: [f"{name}::one"] for name in SECONDS}
    assert next_unit(waiting, running, lambda file, tests: SECONDS[file], Collected(locks=locks)) == expected
    # Two files that share a process are one unit, with the seconds and locks of both.
    waiting = {"c and d": ["c::one", "c::two", "d::one"], "b": ["b::one"]}
    together = {**SECONDS, "d": 1.5}
    chosen = next_unit(waiting, ["x::one"], lambda file, tests: together[file], Collected(locks={"x": ["l"], "d": ["l"]}))
    assert (chosen, Collected(units={"c": "c and d"}).unit_of("c::two")) == ("b", "c and d")
    assert next_unit(waiting, [], lambda file, tests: together[file], Collected()) == "c and d"


def test_a_test_is_too_slow_for_its_machine() -> None:
    measured = Measured(files={"one.py": 150.0, "two.py": 50.0})
    quick = {"one.py::a": 140.0 / 8, "two.py::b": 50.0}
    many = {f"one.py::{each}": 140.0 / 8 for each in range(8)}
    assert list(too_slow(many | quick, measured)) == ["two.py::b"]
    # The same on a machine three times slower, and in a run of so few files that its speed is unknown.
    assert list(too_slow({test: 3 * took for test, took in (many | quick).items()}, measured)) == ["two.py::b"]
    assert too_slow({"two.py::b": 60.0, "new.py::c": 99.0}, measured) == {}
    assert (measured.over, Measured(longest={"two.py::b": 40.0, "one.py::a": 17.5}).over) == (0, 1)
    assert list(too_slow(many | quick | {"new.py::c": 21.0}, measured)) == ["two.py::b", "new.py::c"]


def test_shards_have_each_long_test_once_and_the_cases_of_one_test_evenly() -> None:
    tests = [f"x.py::one[{each}]" for each in range(40)] + [f"y.py::two[{each}]" for each in range(7)]
    shards = [shard(tests, f"{number}/6") for number in range(1, 7)]
    assert sorted(test for each in shards for test in each) == sorted(tests)
    assert {len([test for test in each if "one" in test]) for each in shards} <= {6, 7}
    for wrong in ("7/6", "0/6", "6", "a/b", ""):
        with pytest.raises(ValueError, match="SHARD="):
            shard(tests, wrong)


def test_the_long_tier_goes_on_where_it_stopped_until_the_code_changes(tmp_path: Path) -> None:
    tier = LongTier.read(tmp_path)
    tier.add("a.py::one", "code", 3.21, "2026-01-01, abc")
    tier.add("a.py::two", "code", 4.0, "2026-01-01, abd")
    tier.add("b.py::one", "older", 5.0, "2025-12-31, abb")
    tier.write(tmp_path)
    again = LongTier.read(tmp_path)
    assert again.left(["a.py::one", "a.py::two", "b.py::one", "c.py::one"], "code") == ["b.py::one", "c.py::one"]
    assert again.about() == [("2026-01-01, abc", 2), ("2025-12-31, abb", 1)]
    assert again.estimate("a.py", ["a.py::one", "c.py::one"]) == 63.2
    again.forget("b.py::one")
    again.write(tmp_path)
    assert LongTier.read(tmp_path).codes == {"code": "2026-01-01, abc"}


def test_the_code_is_what_git_tracks_but_documents(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("code.py", "docs/page.md", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    git("add", ".")
    before = code_of_checkout(tmp_path)
    for name in ("docs/page.md", "CHANGELOG.md", "untracked.txt"):
        (tmp_path / name).write_text("two")
    git("commit", "-m", "all", "code.py")
    assert code_of_checkout(tmp_path) == before
    (tmp_path / "code.py").write_text("two")
    assert code_of_checkout(tmp_path) != before
    (tmp_path / "code.py").unlink()
    assert code_of_checkout(tmp_path) != before


# What two files share that hold one lock: they see each other there if they run at once.
LOCKED = """
import time
from pathlib import Path
import pytest
pytestmark = pytest.mark.locks("door")
INSIDE = Path({inside!r})

@pytest.mark.parametrize("which", range(3))
def test_alone(which):
    INSIDE.mkdir()
    time.sleep(0.05)
    INSIDE.rmdir()
"""
# Files that build on each other: each finds in the process what those before it have left.
IN_ORDER = """
import sys
import pytest
pytestmark = pytest.mark.one_process("steps")

def test_follows():
    left = sys.__dict__.setdefault("left", [])
    assert left == list(range({number}))
    left.append({number})
"""
LONG = """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("which", range(4))
def test_long(which):
    assert which != {fails}

def test_usual():
    pass
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the files of a folder, with this suite's own part of it and records of its own."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.run_plugin"]\n')
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  long: l\n  locks(*names): n\n  one_process(name): o\ntestpaths = .\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", "--records", ".", *words]
    # Of this run, whose options and processes are not theirs.
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # The plugins of other distributions take a second to import, in each process.
    environ = {**others, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.server
def test_files_with_one_lock_never_run_at_once(tmp_path: Path) -> None:
    for each in range(4):
        (tmp_path / f"test_door_{each}.py").write_text(LOCKED.format(inside=str(tmp_path / "inside")))
        (tmp_path / f"test_step_{each}.py").write_text(IN_ORDER.format(number=each))
    done = run(tmp_path, "-n", "3")
    assert "16 passed" in done.stdout, done.stdout + done.stderr
    (tmp_path / "test_one.py").write_text("import pytest\n\n@pytest.mark.locks('door')\ndef test_it():\n    pass\n")
    refused = run(tmp_path)
    assert "files are locked, not tests" in refused.stderr + refused.stdout


@pytest.mark.server
@pytest.mark.parametrize("processes", ["20", *(pytest.param(each, marks=pytest.mark.long) for each in ("0", "2"))])
def test_a_long_test_is_run_until_it_has_passed(tmp_path: Path, processes: str) -> None:
    """`processes`: how many each run has, in turn."""
    some, others = processes[0], processes[-1]
    (tmp_path / "test_long.py").write_text(LONG.format(fails=2))
    first = run(tmp_path, "--long-shard", "1/1", "-n", some)
    assert "1 failed, 3 passed" in first.stdout, first.stdout + first.stderr
    assert "Of 4 long tests, 3 have passed on this code." in first.stdout
    half = run(tmp_path, "--long-shard", "2/2", "-n", others)
    assert half.returncode == 0, half.stdout
    assert "4 have passed" not in half.stdout
    (tmp_path / "test_long.py").write_text(LONG.format(fails=9))
    second = run(tmp_path, "--long-shard", "1/1", "-n", some)
    assert "1 passed" in second.stdout, second.stdout + second.stderr
    assert "Of 4 long tests, 4 have passed on this code." in second.stdout
    third = run(tmp_path, "--long-shard", "1/1", "-n", others)
    assert third.returncode == 0, third.stdout + third.stderr
    record = json.loads((tmp_path / "long_tier.json").read_text())
    assert len(record["passed"]) == 4
