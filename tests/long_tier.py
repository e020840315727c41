"""The record of `make test-long`: which of its tests passed, on which code.

A test that passed is not run again until the code changes, so that the tier can be run in parts, and goes on after an
interruption. The record is a file of the repository, because its tests take longer than most changes do.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Self

from tests.collected_tests import file_of

_FOLDER, _NAME = Path(__file__).parent, "long_tier.json"
_ROOT = _FOLDER.parent
_NO_CODE = ("docs/", f"tests/{_NAME}", "tests/measured.json", "CHANGELOG.md", "README.md", "CONTRIBUTING.md")
_KEY_LENGTH = 12


@dataclass
class LongTier:
    """`passed` has for each test the code on which it passed and its seconds; `codes` has when, and at which commit."""

    codes: dict[str, str] = field(default_factory=dict[str, str])
    passed: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    @classmethod
    def read(cls, folder: Path = _FOLDER) -> Self:
        place = folder / _NAME
        return cls(**json.loads(place.read_text())) if place.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace the file, after each test: a run that is killed loses none."""
        used = {code for code, _ in self.passed.values()}
        self.codes = {code: about for code, about in self.codes.items() if code in used}
        self.passed = dict(sorted(self.passed.items()))
        (part := folder / f"{_NAME}.part").write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        part.replace(folder / _NAME)

    def add(self, test: str, code: str, seconds: float, about: str) -> None:
        """Enter a test that passed."""
        self.passed[test] = (code, round(seconds, 1))
        self.codes.setdefault(code, about)

    def forget(self, test: str) -> None:
        """Take out a test that failed, whatever it did before."""
        self.passed.pop(test, None)

    def left(self, tests: Iterable[str], code: str) -> list[str]:
        """Return the tests that have not passed on this code."""
        return [test for test in tests if self.passed.get(test, ("", 0.0))[0] != code]

    def estimate(self, file: str, tests: Iterable[str]) -> float:
        """Return the seconds of tests of a file; one that has never passed counts a minute."""
        return sum(self.passed.get(test, (file, 60.0))[1] for test in tests)

    def about(self) -> list[tuple[str, int]]:
        """Return when and at which commit how many tests passed last, most tests first."""
        return Counter(self.codes[code] for code, _ in self.passed.values()).most_common()

    def seconds_of_files(self) -> dict[str, float]:
        """Return the seconds of each file that has long tests."""
        files = dict[str, float]()
        for test, (_, took) in self.passed.items():
            files[file_of(test)] = files.get(file_of(test), 0.0) + took
        return files


def shard(tests: Iterable[str], which: str) -> list[str]:
    """Return the tests of shard `i/n`: every n-th, so that the cases of one test are spread evenly.

    Raises:
        ValueError: `which` is no shard.
    """
    number, _, of = which.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise ValueError(f"SHARD={which}: write SHARD=2/6 for the second of six shards")
    return sorted(tests)[int(number) - 1 :: int(of)]


def code_of_checkout(root: Path = _ROOT) -> str:
    """Return a digest of the files on which a test's outcome depends: all that git tracks, but for documents and records."""
    listed = _git(root, "ls-files", "-z").split("\0")
    digest = sha256()
    for name in sorted(name for name in listed if name and not name.startswith(_NO_CODE)):
        # A file that is deleted, and not yet so in the index, is missing.
        content = (root / name).read_bytes() if (root / name).is_file() else b""
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_KEY_LENGTH]


def about_checkout(root: Path = _ROOT) -> str:
    """Return the day and the commit, for the record."""
    changed = "" if not _git(root, "status", "--porcelain", "-uno") else ", changed"
    return f"{datetime.now(UTC):%Y-%m-%d}, {_git(root, 'rev-parse', '--short', 'HEAD').strip()}{changed}"


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout
