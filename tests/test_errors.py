"""The hierarchy of errors: a retry is decided by type."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratify_lakehouse import errors
from ratify_lakehouse.errors import CatalogError, RatifyError, StreamError, TableError, TerminalError, TransientError

ROOT = Path(__file__).parents[1]
OURS = ("ratify_lakehouse", "orchestration", "resources")
GROUPS = {CatalogError, StreamError, TableError}
DEFINED = re.compile(
    r"^class \w+\((?:\w+, )*(?:TransientError|TerminalError|RatifyError|CatalogError|StreamError|TableError)\b", re.M
)


def subclasses(kind: type[RatifyError]) -> Iterator[type[RatifyError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def sources() -> Iterator[tuple[Path, str]]:
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, path.read_text()


@pytest.fixture(scope="module")
def kinds() -> set[type[RatifyError]]:
    for path, text in sources():
        if DEFINED.search(text):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return set(subclasses(RatifyError)) - {TransientError, TerminalError}


def test_every_error_is_either_transient_or_terminal(kinds: set[type[RatifyError]]) -> None:
    assert {"IndexLost", "BadMessage", "CannotDeclare", "ReplayFailed", "ColumnsToAdd"} <= {kind.__name__ for kind in kinds}
    both = [kind for kind in kinds - GROUPS if issubclass(kind, TransientError) == issubclass(kind, TerminalError)]
    assert both == []
    assert [group for group in GROUPS if issubclass(group, TransientError | TerminalError)] == []


def test_a_group_is_never_raised() -> None:
    groups = {kind.__name__ for kind in (*GROUPS, RatifyError, TransientError, TerminalError)}
    called = re.compile(rf"\b({'|'.join(groups)})\b")
    raised = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, text in sources()
        if called.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in groups
    ]
    assert raised == []


def test_a_lost_reply_may_be_repeated_but_is_not_nothing_committed() -> None:
    assert issubclass(errors.CommitOutcomeUnknown, TransientError)
    assert not issubclass(errors.CommitOutcomeUnknown, errors.NOTHING_COMMITTED)
    assert not issubclass(errors.CatalogUnavailable, errors.NOTHING_COMMITTED)
