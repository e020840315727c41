"""What the tier of `make test-unit` promises: a test of it starts no server, and no Python process.

A test that does fails where it does so, and the failure names the marker that it needs. `sys.addaudithook` sees what
fixtures and the code under test start, too.
"""

import sys
import threading
from collections.abc import Generator

import pytest

from tests.collected_tests import UNIT, tier_of

# Files that nothing can be known of are parsed by a process of the product.
_PARSER = "ratify_lakehouse.ingest.formats.isolated_parsing"
_watched: pytest.Item | None = None


def pytest_configure() -> None:
    """An audit hook stays for the life of the process."""
    sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch unit tests, with the set-up and the end of their fixtures."""
    global _watched  # noqa: PLW0603 the audit hook knows no test
    _watched = item if tier_of(item) == UNIT else None
    try:
        return (yield)
    finally:
        _watched = None


def _refuse(event: str, args: tuple[object, ...]) -> None:
    # Threads may be those of servers that other tests have started.
    if _watched is None or event not in ("socket.bind", "subprocess.Popen"):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if event == "socket.bind":
        started = f"binds a server's socket to {args[1]}"
    elif args[0] == sys.executable and _PARSER not in str(args[1]):
        started = f"starts the process {args[1]}"
    else:
        return
    pytest.fail(f"{_watched.nodeid} {started}: no unit test does. Mark it (or its module) with pytest.mark.server.")
