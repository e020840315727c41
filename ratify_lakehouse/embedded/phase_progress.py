"""How a long start says what it does: a line for each phase, and none that is silent for long."""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from ratify_lakehouse.embedded.private_files import Progress

REPEAT_SECONDS = 15.0


@contextmanager
def phase(progress: Progress, what: str) -> Generator[None]:
    """Report that a phase begins and how long it took; on a terminal also, every 15 seconds, that it goes on.

    Args:
        progress: Shows a line.
        what: What the phase does, such as `compiling the connector`.
    """
    progress(what)
    began, ended = time.monotonic(), threading.Event()

    def seconds() -> str:
        return f"{time.monotonic() - began:.1f} s"

    def repeat() -> None:
        while not ended.wait(REPEAT_SECONDS):
            progress(f"  still {what}: {seconds()}")

    repeating = threading.Thread(target=repeat, daemon=True)
    if sys.stderr.isatty():
        repeating.start()
    try:
        yield
    finally:
        ended.set()
        if repeating.ident:
            repeating.join()
    progress(f"  done in {seconds()}")
